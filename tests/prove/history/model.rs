//! What one lock does, one call after the other: the sequential specification.

use crate::call::{Answer, Ask, Attempt, Call, Mode};

/// How much a deadline may seem early or late: the server counts in ms, and takes a command's time at its beginning.
const SLACK_US: u64 = 25_000;

/// The lock between two calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The greatest fence granted.
    fence_max: u64,
    held: Option<Held>,
    /// Any deadline may pass any time.
    any_deadline: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    attempt: Attempt,
    /// Not known if the grant's answer was lost.
    fence: Option<u64>,
    /// The deadline lies between these two, microseconds since the run began.
    lapses_us: (u64, u64),
    /// Nobody heard of the grant; a server that notices takes it back.
    is_unheard: bool,
}

impl State {
    /// Free, or held by a grant whose deadline is far, or not known.
    pub fn start(held: Option<(Attempt, u64)>, deadline_is_far: bool) -> Self {
        let lapses_us = if deadline_is_far { (u64::MAX, u64::MAX) } else { (0, u64::MAX) };
        Self {
            any_deadline: false,
            fence_max: held.map_or(0, |(_, fence)| fence),
            held: held.map(|(attempt, fence)| Held { attempt, fence: Some(fence), lapses_us, is_unheard: false }),
        }
    }

    /// The same for a server whose clock jumps.
    pub fn without_deadlines(self) -> Self {
        Self { any_deadline: true, ..self }
    }

    fn free(&self) -> Self {
        Self { held: None, ..self.clone() }
    }

    /// All states in which the lock can be after `call`, if it can have answered so at all.
    pub fn after(&self, call: &Call) -> Vec<Self> {
        let mut all = Vec::new();
        match &self.held {
            None => self.step(call, &mut all),
            Some(held) => {
                let (early_us, late_us) = if self.any_deadline { (0, u64::MAX) } else { held.lapses_us };
                if call.start_us <= late_us.saturating_add(SLACK_US) {
                    self.step(call, &mut all);
                }
                if held.is_unheard || call.end_us.saturating_add(SLACK_US) >= early_us {
                    self.free().step(call, &mut all);
                }
            }
        }
        all
    }

    /// The same for a lock whose deadline is not passed when the call is carried out.
    fn step(&self, call: &Call, all: &mut Vec<Self>) {
        if matches!(call.answer, Answer::Error(_)) {
            all.push(self.clone());
            return;
        }
        let lost = call.answer == Answer::Lost;
        if lost {
            all.push(self.clone());
        }
        let fence = match call.answer {
            Answer::Granted(fence) => Some(fence),
            _ => None,
        };
        let until = |ttl_ms: u64| {
            let ttl_us = ttl_ms.saturating_mul(1_000);
            (call.start_us.saturating_add(ttl_us), call.end_us.saturating_add(ttl_us))
        };
        match &call.ask {
            Ask::Claim { attempt, ttl_ms, mode } => {
                let own = self.held.as_ref().filter(|held| held.attempt == *attempt);
                let lapses_us = until(*ttl_ms);
                if let Some(own) = own {
                    // Granted again, with the fence it has.
                    let same = own.fence.is_none() || fence.is_none() || own.fence == fence;
                    if (lost || fence.is_some()) && same {
                        let fence = own.fence.or(fence);
                        all.push(self.hold(*attempt, fence, lapses_us, lost && own.is_unheard));
                    }
                } else if self.held.is_none() || *mode == Mode::Steal {
                    if (lost || fence.is_some()) && fence.is_none_or(|fence| fence > self.fence_max) {
                        all.push(self.hold(*attempt, fence, lapses_us, lost));
                    }
                } else if call.answer == Answer::Refused {
                    all.push(self.clone());
                }
            }
            Ask::Renew { attempt, ttl_ms } => match self.held.as_ref().filter(|held| held.attempt == *attempt) {
                Some(own) if lost || call.answer == Answer::One => {
                    all.push(self.hold(*attempt, own.fence, until(*ttl_ms), lost && own.is_unheard));
                }
                None if call.answer == Answer::Zero => all.push(self.clone()),
                _ => {}
            },
            Ask::Release { attempt } => match self.held.as_ref().filter(|held| held.attempt == *attempt) {
                Some(_) if lost || call.answer == Answer::One => all.push(self.free()),
                None if call.answer == Answer::Zero => all.push(self.clone()),
                _ => {}
            },
            Ask::Look => match (&self.held, &call.answer) {
                (None, Answer::Seen(None)) => all.push(self.clone()),
                (Some(held), Answer::Seen(Some((attempt, fence))))
                    if held.attempt == *attempt && held.fence.is_none_or(|held| held == *fence) =>
                {
                    all.push(self.hold(*attempt, Some(*fence), held.lapses_us, held.is_unheard));
                }
                _ => {}
            },
        }
    }

    fn hold(&self, attempt: Attempt, fence: Option<u64>, lapses_us: (u64, u64), is_unheard: bool) -> Self {
        Self {
            any_deadline: self.any_deadline,
            fence_max: fence.unwrap_or_default().max(self.fence_max),
            held: Some(Held { attempt, fence, lapses_us, is_unheard }),
        }
    }
}
