//! Calls and what became of them, as the one who called saw it.

use std::sync::OnceLock;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Zero of all times in a run, by the machine's monotonic clock, which all processes share.
static ZERO_US: OnceLock<u64> = OnceLock::new();

/// Now, in microseconds since the run began.
pub fn now_us() -> u64 {
    let zero_us = zero_us();
    monotonic_us() - zero_us
}

/// When the run began: what its other processes count from.
pub fn zero_us() -> u64 {
    *ZERO_US.get_or_init(monotonic_us)
}

/// In a process that another one started: counts from when that one's run began.
pub fn count_from(zero_us: u64) {
    ZERO_US.set(zero_us).expect("nothing was counted yet");
}

fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the monotonic clock");
    u64::try_from(now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000).expect("a clock that began at 0")
}

/// A claim as one client sent it, perhaps several times: it has a token and a holder label of its own.
pub type Attempt = u32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    Claim {
        attempt: Attempt,
        ttl_ms: u64,
        mode: Mode,
    },
    Renew {
        attempt: Attempt,
        ttl_ms: u64,
    },
    Release {
        attempt: Attempt,
    },
    /// A look at the lock's holder and fence.
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    Plain,
    Block,
    Steal,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Granted(u64),
    Refused,
    One,
    Zero,
    Seen(Option<(Attempt, u64)>),
    /// An error that says that nothing was done.
    Error(String),
    /// No answer: the connection or the server was gone, and nobody knows whether it was done before that.
    Lost,
}

/// One call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub key: usize,
    pub ask: Ask,
    /// Microseconds since the run began.
    pub start_us: u64,
    /// After this it had no effect any more, answered or not.
    #[serde(default = "never")]
    pub end_us: u64,
    pub answer: Answer,
}

/// Nobody knows when.
const fn never() -> u64 {
    u64::MAX
}

impl Call {
    /// The grant that this call got: its attempt and fence.
    pub fn grant(&self) -> Option<(Attempt, u64)> {
        match (&self.ask, &self.answer) {
            (Ask::Claim { attempt, .. }, Answer::Granted(fence)) => Some((*attempt, *fence)),
            _ => None,
        }
    }
}
