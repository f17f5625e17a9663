//! What holds over all locks of a server, whatever its single locks do.

use std::collections::HashMap;

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
/// `seen_waiting` has for each waiting call the time at which the server had it blocked. Returns how many pairs were
/// compared.
#[track_caller]
pub fn waiters_come_first(calls: &[Call], seen_waiting: &[(usize, u64)]) -> usize {
    let sent = times_sent(calls);
    let mut pairs = 0;
    for (index, blocked_us) in seen_waiting {
        let waiter = &calls[*index];
        let Some((_, granted)) = waiter.grant() else { continue };
        for later in calls {
            let is_steal = matches!(later.ask, Ask::Claim { mode: Mode::Steal, .. });
            let first_sent_us = attempt(later).map_or(0, |attempt| sent[&attempt].1);
            if later.key != waiter.key || first_sent_us <= *blocked_us || is_steal {
                continue;
            }
            if let Some((_, fence)) = later.grant() {
                pairs += 1;
                assert!(fence > granted, "{later:?} came before {waiter:?}, which was waiting since {blocked_us}");
            }
        }
    }
    pairs
}
