//! Calls and what became of them, as the one who called saw it.

use std::sync::LazyLock;
use std::time::Instant;

/// Zero of all times in a run.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, in microseconds since the run began.
pub fn now_us() -> u64 {
    u64::try_from(START.elapsed().as_micros()).expect("less than ages")
}

/// A claim as one client sent it, perhaps several times: it has a token and a holder label of its own.
pub type Attempt = u32;

#[derive(Clone, Debug, PartialEq, Eq)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Plain,
    Block,
    Steal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug)]
pub struct Call {
    pub key: usize,
    pub ask: Ask,
    /// Microseconds since the run began.
    pub start_us: u64,
    /// After this it had no effect any more, answered or not.
    pub end_us: u64,
    pub answer: Answer,
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
