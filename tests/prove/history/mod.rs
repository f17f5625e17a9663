//! Whether what many clients saw is what one lock can do: see [`search`] and [`model`]; [`rules`] has what holds over all
//! locks.

mod model;
pub mod rules;
mod search;

use std::collections::BTreeMap;

use crate::call::{Answer, Call};
use crate::load::Settings;

pub use model::State;

/// The state of each key before a history: what was seen at leisure when nobody else called.
pub fn seen(looks: &[Call], settings: &Settings) -> BTreeMap<usize, State> {
    let state = |look: &Call| match &look.answer {
        Answer::Seen(held) => State::start(*held, settings.deadlines_are_far()),
        other => panic!("not a look: {other:?}"),
    };
    looks.iter().map(|look| (look.key, state(look))).collect()
}

/// Checks the calls of each key against the lock's model; `before` tells which were held when the history began. Panics
/// with the calls of the first key whose history no lock could have brought about. Returns how many calls were checked.
#[track_caller]
pub fn check(calls: &[Call], before: &BTreeMap<usize, State>) -> usize {
    check_with(calls, before, false)
}

/// The same for a server whose clock jumps, so that deadlines may pass any time.
#[track_caller]
pub fn check_without_deadlines(calls: &[Call], before: &BTreeMap<usize, State>) -> usize {
    check_with(calls, before, true)
}

#[track_caller]
fn check_with(calls: &[Call], before: &BTreeMap<usize, State>, any_deadline: bool) -> usize {
    let mut by_key: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        by_key.entry(call.key).or_default().push(call);
    }
    for (key, mut calls) in by_key {
        calls.sort_by_key(|call| (call.start_us, call.end_us));
        let before = before.get(&key).cloned().unwrap_or_else(|| State::start(None, true));
        let before = if any_deadline { before.without_deadlines() } else { before };
        if let Err(stuck) = search::linearize(&calls, before.clone()) {
            let lines: Vec<String> = calls.iter().map(|call| format!("{call:?}")).collect();
            panic!(
                "no order of these calls on key {key}, from {before:?}, explains their answers; at the farthest, {stuck}\n{}",
                lines.join("\n")
            );
        }
    }
    calls.len()
}
