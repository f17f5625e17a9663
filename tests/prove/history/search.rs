//! The search for an order: each call takes effect at one moment between its start and its end, and the calls in the order
//! of these moments must be what one lock can do. It is the search of Wing and Gong with Lowe's memory of what was tried.
//! The crates that have it know neither calls that may or may not have happened nor deadlines between two bounds, so it is
//! written down here.

use std::collections::HashSet;

use super::model::State;
use crate::call::{Answer, Call};

/// Where the search stands: what is placed, and the state after it.
struct Step {
    state: State,
    /// The call and the variant of its outcome that were placed to come here.
    placed: Option<usize>,
    /// What is still to try from here.
    next: Vec<(usize, State)>,
}

/// Finds an order of the calls of one key, sorted by their start. The error says where even the best order got stuck.
pub fn linearize(calls: &[&Call], before: State) -> Result<(), String> {
    let needed = calls.iter().filter(|call| call.answer != Answer::Lost).count();
    let mut is_placed = vec![false; calls.len()];
    let mut placed = 0;
    let mut tried: HashSet<(Vec<u64>, State)> = HashSet::new();
    let mut best: Option<(usize, String)> = None;
    let mut path = vec![Step { next: options(calls, &is_placed, &before), state: before, placed: None }];
    loop {
        if placed == needed {
            return Ok(());
        }
        let Some(step) = path.last_mut() else {
            return Err(best.map_or_else(|| "not even the first".to_owned(), |(_, stuck)| stuck));
        };
        if let Some((index, state)) = step.next.pop() {
            is_placed[index] = true;
            if tried.insert((bits(&is_placed), state.clone())) {
                placed += usize::from(calls[index].answer != Answer::Lost);
                let next = options(calls, &is_placed, &state);
                path.push(Step { state, placed: Some(index), next });
            } else {
                is_placed[index] = false;
            }
        } else {
            if best.as_ref().is_none_or(|(most, _)| placed > *most) {
                let next = calls.iter().zip(&is_placed).find(|(call, done)| !**done && call.answer != Answer::Lost);
                best = Some((
                    placed,
                    format!("{placed} fit, then in {:?} comes {:?}", step.state, next.map(|(call, _)| call)),
                ));
            }
            if let Some(index) = step.placed {
                is_placed[index] = false;
                placed -= usize::from(calls[index].answer != Answer::Lost);
            }
            path.pop();
        }
    }
}

/// The calls that may come next, with the states to which they lead; the likeliest last.
fn options(calls: &[&Call], is_placed: &[bool], state: &State) -> Vec<(usize, State)> {
    // A call that begins after another has ended comes after it.
    let mut first_end_us = u64::MAX;
    let last_start_us = calls.iter().zip(is_placed).filter(|(_, done)| **done).map(|(call, _)| call.start_us).max();
    let mut candidates = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        if is_placed[index] {
            continue;
        }
        if call.start_us > first_end_us {
            break;
        }
        // So does one without an answer come before all that began after it was given up.
        if last_start_us.is_none_or(|start_us| start_us <= call.end_us) {
            candidates.push(index);
        }
        if call.answer != Answer::Lost {
            first_end_us = first_end_us.min(call.end_us);
        }
    }
    // What ended earlier likely happened earlier; what nobody saw the end of is tried last.
    candidates.sort_by_key(|index| (calls[*index].answer == Answer::Lost, calls[*index].end_us));
    candidates.reverse();
    candidates
        .into_iter()
        .filter(|index| calls[*index].start_us <= first_end_us)
        .flat_map(|index| state.after(calls[index]).into_iter().map(move |state| (index, state)))
        .collect()
}

fn bits(flags: &[bool]) -> Vec<u64> {
    flags.chunks(64).map(|chunk| chunk.iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(*flag))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Answer::*, Ask, Mode};

    const CLAIM: Mode = Mode::Plain;

    fn claim(attempt: u32, mode: Mode) -> Ask {
        Ask::Claim { attempt, ttl_ms: 1_000, mode }
    }

    fn history(calls: &[(Ask, u64, u64, Answer)]) -> bool {
        let calls: Vec<Call> = calls
            .iter()
            .map(|(ask, start_ms, end_ms, answer)| Call {
                key: 0,
                ask: ask.clone(),
                start_us: start_ms * 1_000,
                end_us: end_ms * 1_000,
                answer: answer.clone(),
            })
            .collect();
        let calls: Vec<&Call> = calls.iter().collect();
        linearize(&calls, State::start(None, true)).is_ok()
    }

    #[test]
    fn two_holders_at_once_are_found() {
        assert!(history(&[(claim(1, CLAIM), 0, 1, Granted(5)), (claim(2, CLAIM), 2, 3, Refused)]));
        assert!(!history(&[(claim(1, CLAIM), 0, 1, Granted(5)), (claim(2, CLAIM), 2, 3, Granted(6))]));
        assert!(!history(&[(claim(1, CLAIM), 0, 9, Granted(5)), (claim(2, CLAIM), 0, 9, Granted(6))]));
    }

    #[test]
    fn a_deadline_frees_and_not_before() {
        let first = (claim(1, CLAIM), 0, 1, Granted(5));
        assert!(history(&[first.clone(), (claim(2, CLAIM), 1_100, 1_101, Granted(6))]));
        assert!(!history(&[first.clone(), (claim(2, CLAIM), 900, 901, Granted(6))]));
        assert!(!history(&[first.clone(), (claim(2, CLAIM), 1_100, 1_101, Refused)]));
        let renewal = (Ask::Renew { attempt: 1, ttl_ms: 1_000 }, 500, 501, One);
        assert!(history(&[first.clone(), renewal.clone(), (claim(2, CLAIM), 1_100, 1_101, Refused)]));
        assert!(!history(&[first, renewal, (claim(2, CLAIM), 1_100, 1_101, Granted(6))]));
    }

    #[test]
    fn fences_rise_and_stay_with_their_grant() {
        let (first, release) = ((claim(1, CLAIM), 0, 1, Granted(5)), (Ask::Release { attempt: 1 }, 2, 3, One));
        assert!(history(&[first.clone(), release.clone(), (claim(2, CLAIM), 4, 5, Granted(6))]));
        assert!(!history(&[first.clone(), release, (claim(2, CLAIM), 4, 5, Granted(5))]));
        assert!(history(&[first.clone(), (claim(1, CLAIM), 2, 3, Granted(5))]));
        assert!(!history(&[first.clone(), (claim(1, CLAIM), 2, 3, Granted(6))]));
        assert!(!history(&[first.clone(), (claim(1, CLAIM), 2, 3, Refused)]), "refused by its own lock");
        assert!(history(&[first.clone(), (claim(2, Mode::Steal), 2, 3, Granted(6))]));
        assert!(!history(&[first, (claim(2, Mode::Steal), 2, 3, Refused)]));
    }

    #[test]
    fn releases_and_renewals_are_the_holders_alone() {
        let first = (claim(1, CLAIM), 0, 1, Granted(5));
        let release = |attempt, at_ms, answer| (Ask::Release { attempt }, at_ms, at_ms + 1, answer);
        assert!(!history(&[first.clone(), release(2, 2, One)]));
        assert!(!history(&[first.clone(), release(1, 2, Zero)]));
        assert!(!history(&[first.clone(), release(1, 2, One), release(1, 4, One)]));
        assert!(history(&[first.clone(), release(1, 2, One), release(1, 4, Zero)]));
        assert!(!history(&[first.clone(), release(1, 2, One), (Ask::Renew { attempt: 1, ttl_ms: 1 }, 4, 5, One)]));
        assert!(!history(&[first.clone(), release(1, 2, One), (Ask::Look, 4, 5, Seen(Some((1, 5))))]));
        assert!(!history(&[first.clone(), (Ask::Look, 4, 5, Seen(None))]));
        assert!(!history(&[first, (Ask::Look, 4, 5, Seen(Some((1, 6))))]));
    }

    #[test]
    fn a_lost_call_may_have_happened_or_not_and_an_error_has_not() {
        let lost = (claim(1, CLAIM), 0, 1, Lost);
        assert!(history(&[lost.clone(), (claim(2, CLAIM), 2, 3, Granted(6))]));
        assert!(
            !history(&[
                (claim(2, CLAIM), 2, 3, Granted(6)),
                (Ask::Release { attempt: 2 }, 4, 5, Lost),
                (claim(3, CLAIM), 6, 7, Refused),
                (claim(4, CLAIM), 8, 9, Granted(7))
            ]),
            "done after it was given up"
        );
        assert!(history(&[lost.clone(), (claim(2, CLAIM), 2, 3, Refused)]));
        assert!(history(&[lost.clone(), (claim(1, CLAIM), 2, 3, Granted(5)), (Ask::Look, 4, 5, Seen(Some((1, 5))))]));
        assert!(!history(&[
            lost,
            (claim(2, CLAIM), 2, 3, Refused),
            (claim(1, CLAIM), 4, 5, Granted(5)),
            (claim(2, CLAIM), 6, 7, Granted(6)),
        ]));
        let first = (claim(1, CLAIM), 0, 1, Granted(5));
        let error = (Ask::Release { attempt: 1 }, 2, 3, Error("READONLY".to_owned()));
        assert!(!history(&[first, error, (claim(2, CLAIM), 4, 5, Granted(6))]));
    }

    #[test]
    fn a_grant_that_nobody_heard_of_may_be_taken_back_and_no_other() {
        let lost = (claim(1, Mode::Block), 0, 9, Lost);
        let release = (Ask::Release { attempt: 9 }, 5, 6, Zero);
        assert!(history(&[
            lost.clone(),
            release,
            (claim(2, CLAIM), 10, 11, Refused),
            (claim(3, CLAIM), 12, 13, Granted(7)),
            (claim(4, CLAIM), 14, 15, Refused),
        ]));
        assert!(!history(&[
            lost,
            (claim(1, CLAIM), 10, 11, Granted(5)),
            (claim(2, CLAIM), 12, 13, Refused),
            (claim(3, CLAIM), 14, 15, Granted(7)),
        ]));
    }

    #[test]
    fn a_waiter_is_granted_between_its_call_and_its_answer() {
        assert!(history(&[
            (claim(1, CLAIM), 0, 1, Granted(5)),
            (claim(2, Mode::Block), 2, 50, Granted(6)),
            (Ask::Release { attempt: 1 }, 40, 41, One),
            (claim(3, CLAIM), 42, 43, Refused),
        ]));
    }
}
