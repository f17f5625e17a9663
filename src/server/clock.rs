//! What time it is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lazy_static::lazy_static;

/// A moment of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Unix time in microseconds.
    pub us: u64,
}

impl Now {
    /// Unix time in ms.
    pub fn ms(self) -> i64 {
        i64::try_from(self.us / 1_000).unwrap_or(i64::MAX)
    }
}

/// The wall clock, read now. For timers, whose server time may be old.
pub fn wall() -> Now {
    let us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Now { us: u64::try_from(us).unwrap_or(u64::MAX) }
}

/// The time by which the server judges the command that runs: the same for all of a script or transaction where the
/// server has it so (7.2 and later), else the wall clock, as such a server does for its own commands.
pub fn command() -> Now {
    match api!(RedisModule_CachedMicroseconds()) {
        Some(us) if us > 0 => Now { us: u64::try_from(us).unwrap_or_default() },
        _ => wall(),
    }
}

lazy_static! {
    static ref START: Instant = Instant::now();
}

/// Ms since the module first asked; never set back.
pub fn monotonic_ms() -> i64 {
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}
