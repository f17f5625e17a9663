//! Waiting for a condition, within a bound.

use std::time::{Duration, Instant};

use super::memcheck::stretched;

/// How long a test waits for what must happen before it calls it a failure: far above what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks until `condition` gives a value, and returns it; panics with `what` was waited for after `timeout`.
#[track_caller]
pub fn wait_until<T>(what: &str, timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let (start, timeout) = (Instant::now(), stretched(timeout));
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < timeout, "waited {timeout:?} in vain for: {what}");
        std::thread::sleep(PAUSE);
    }
}
