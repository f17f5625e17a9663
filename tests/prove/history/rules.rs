//! What holds over all locks of a server, whatever its single locks do.

use std::collections::{HashMap, HashSet};

use crate::call::{Ask, Attempt, Call, Mode};

/// No fence belongs to two grants, and a grant that began after another was answered has the greater fence. Returns how
/// many grants were compared.
#[track_caller]
pub fn fences_rise(calls: &[Call]) -> usize {
    let mut by_fence: HashMap<u64, &Call> = HashMap::new();
    // A grant sent again has the fence of the first time, so only the first counts.
    let mut first: HashMap<u64, &Call> = HashMap::new();
    for call in calls {
        let Some((attempt, fence)) = call.grant() else { continue };
        if let Some(other) = by_fence.insert(fence, call) {
            assert_eq!(other.grant(), Some((attempt, fence)), "a fence repeated: {other:?} and {call:?}");
            assert_eq!(other.key, call.key, "a fence on two keys: {other:?} and {call:?}");
        }
        let earliest = first.entry(fence).or_insert(call);
        if call.end_us < earliest.end_us {
            *earliest = call;
        }
    }
    let sent = times_sent(calls);
    let mut by_start: Vec<&&Call> = first.values().collect();
    let mut by_end = by_start.clone();
    by_start.sort_by_key(|call| call.start_us);
    by_end.sort_by_key(|call| call.end_us);
    let mut ended = by_end.into_iter().peekable();
    let mut greatest: Option<&Call> = None;
    for call in by_start {
        while let Some(earlier) = ended.next_if(|earlier| earlier.end_us < call.start_us) {
            if greatest.is_none_or(|greatest| fence(earlier) > fence(greatest)) {
                greatest = Some(earlier);
            }
        }
        // One that had been sent before, and was then lost, was perhaps granted then.
        let is_repeated = attempt(call).is_some_and(|attempt| sent[&attempt].0 > 1);
        if let Some(greatest) = greatest
            && !is_repeated
        {
            assert!(fence(call) > fence(greatest), "the fence went back: {greatest:?}, then {call:?}");
        }
    }
    first.len()
}

fn fence(call: &Call) -> u64 {
    call.grant().map_or(0, |(_, fence)| fence)
}

fn attempt(call: &Call) -> Option<Attempt> {
    match call.ask {
        Ask::Claim { attempt, .. } => Some(attempt),
        _ => None,
    }
}

/// How often each claim was sent, and when first.
fn times_sent(calls: &[Call]) -> HashMap<Attempt, (usize, u64)> {
    let mut sent: HashMap<Attempt, (usize, u64)> = HashMap::new();
    for call in calls {
        if let Some(attempt) = attempt(call) {
            let entry = sent.entry(attempt).or_insert((0, call.start_us));
            *entry = (entry.0 + 1, entry.1.min(call.start_us));
        }
    }
    sent
}

/// A client that was seen waiting comes before every claim on that key that began later, except for steals.
/// `seen_waiting` has the time at which an attempt was seen blocked by the server. Returns how many pairs were compared.
#[track_caller]
pub fn waiters_come_first(calls: &[Call], seen_waiting: &HashMap<Attempt, u64>) -> usize {
    let sent = times_sent(calls);
    // A thief that claims again is still none who waited for a turn.
    let stole: HashSet<Attempt> = calls
        .iter()
        .filter(|call| matches!(call.ask, Ask::Claim { mode: Mode::Steal, .. }))
        .filter_map(attempt)
        .collect();
    let mut pairs = 0;
    for waiter in calls {
        let Some((waiting, granted)) = waiter.grant() else { continue };
        // The very call that was seen: a claim that is sent again after its grant lapsed, or after its connection broke, has
        // no place from before.
        let is_during = |at_us: &&u64| (waiter.start_us..waiter.end_us).contains(*at_us);
        let Some(blocked_us) = seen_waiting.get(&waiting).filter(is_during) else { continue };
        for later in calls {
            let is_steal = attempt(later).is_some_and(|attempt| stole.contains(&attempt));
            let first_sent_us = attempt(later).map_or(0, |attempt| sent[&attempt].1);
            if later.key != waiter.key || first_sent_us <= *blocked_us || is_steal {
                continue;
            }
            if let Some((_, fence)) = later.grant() {
                pairs += 1;
                if fence < granted {
                    let around = calls.iter().filter(|call| {
                        call.key == waiter.key
                            && call.start_us < waiter.end_us
                            && call.end_us.saturating_add(100_000) > waiter.start_us
                    });
                    let lines: Vec<String> = around.map(|call| format!("{call:?}")).collect();
                    panic!(
                        "{later:?} came before {waiter:?}, which was waiting since {blocked_us}; on that key then:\n{}",
                        lines.join("\n")
                    );
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Answer;

    fn claim(attempt: Attempt, mode: Mode, start_us: u64, end_us: u64, fence: u64) -> Call {
        let ask = Ask::Claim { attempt, ttl_ms: 1, mode };
        Call { key: 0, ask, start_us, end_us, answer: Answer::Granted(fence) }
    }

    #[test]
    fn whoever_waits_comes_before_later_claims() {
        let seen = HashMap::from([(1, 20)]);
        let waited = claim(1, Mode::Block, 10, 50, 7);
        assert_eq!(waiters_come_first(&[waited.clone(), claim(2, Mode::Plain, 30, 60, 8)], &seen), 1);
        assert_eq!(waiters_come_first(&[waited, claim(2, Mode::Steal, 30, 40, 6)], &seen), 0);
    }

    #[test]
    #[should_panic(expected = "came before")]
    fn nobody_comes_before_whoever_waits() {
        let calls = [claim(1, Mode::Block, 10, 50, 7), claim(2, Mode::Plain, 30, 40, 6)];
        waiters_come_first(&calls, &HashMap::from([(1, 20)]));
    }

    #[test]
    fn a_claim_sent_again_waits_anew() {
        let calls =
            [claim(1, Mode::Block, 10, 50, 5), claim(2, Mode::Plain, 60, 70, 6), claim(1, Mode::Plain, 80, 90, 7)];
        assert_eq!(waiters_come_first(&calls, &HashMap::from([(1, 20)])), 1);
    }
}
