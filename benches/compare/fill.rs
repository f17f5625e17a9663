//! Servers full of locks: this module's, and plain strings with an expiry.

use crate::script::{Reply, Script, Step, step};
use crate::subject::Subject;
use crate::words::{TTL_MS, holder, key, scattered, token};

/// Locks in one script, so that a million of them need not lie in this program's memory at once.
const CHUNK: usize = 50_000;

/// How many locks each holder has.
pub const LOCKS_PER_HOLDER: usize = 1_000;

/// Whose lock this is, where there are `count` in all.
pub fn holder_of(number: usize, count: usize) -> usize {
    number % (count / LOCKS_PER_HOLDER)
}

/// Claims `count` locks with token and holder.
pub fn with_locks(subject: &Subject, count: usize) {
    play_for_all(subject, count, |number| lock(number, count));
}

/// One of them.
pub fn lock(number: usize, count: usize) -> Step {
    let owner = holder_of(number, count);
    let (key, token, holder) = (key(number), token(number, owner), holder(owner));
    step(&format!("PRLOCK.CLAIM {key} PX {TTL_MS} TOKEN {token} HOLDER {holder}"), Reply::Grant)
}

/// Sets as many plain strings with the same keys and tokens.
pub fn with_strings(subject: &Subject, count: usize) {
    play_for_all(subject, count, |number| string(number, count));
}

/// One of them.
pub fn string(number: usize, count: usize) -> Step {
    let token = token(number, holder_of(number, count));
    step(&format!("SET {} {token} NX PX {TTL_MS}", key(number)), Reply::Ok)
}

/// The same with values that are longer by `extra` bytes.
pub fn with_longer_strings(subject: &Subject, count: usize, extra: usize) {
    let rest = "-".repeat(extra);
    play_for_all(subject, count, |number| {
        let token = token(number, holder_of(number, count));
        step(&format!("SET {} {token}{rest} NX PX {TTL_MS}", key(number)), Reply::Ok)
    });
}

/// Releases all of them.
pub fn release_locks(subject: &Subject, count: usize) {
    play_for_all(subject, count, |number| {
        let token = token(number, holder_of(number, count));
        step(&format!("PRLOCK.RELEASE {} {token}", key(number)), Reply::One)
    });
}

/// Deletes all of them.
pub fn delete_strings(subject: &Subject, count: usize) {
    play_for_all(subject, count, |number| step(&format!("DEL {}", key(number)), Reply::One));
}

fn play_for_all(subject: &Subject, count: usize, step_for: impl Fn(usize) -> Step) {
    let mut numbers = scattered(count).peekable();
    while numbers.peek().is_some() {
        let script: Script = numbers.by_ref().take(CHUNK).map(&step_for).collect();
        subject.play(&script);
    }
}
