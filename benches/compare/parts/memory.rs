//! What a lock takes of the server's memory, and what of it comes back.

use crate::fill;
use crate::options::Options;
use crate::report::{Report, Target, Value};
use crate::subject::Subject;

const PART: &str = "memory";

pub const MILLION: usize = 1_000_000;

pub fn run(_options: &Options, report: &mut Report) {
    let locks = measure(&Subject::with_module(), fill::with_locks, fill::release_locks);
    let strings = measure(&Subject::without_module(), fill::with_strings, fill::delete_strings);
    report.beside(
        PART,
        "per lock, registry and 20-byte holder included",
        Value(locks.taken, "B"),
        ("string with expiry", Value(strings.taken, "B")),
        (Value(locks.taken / strings.taken, "x"), Target::AtMost(2.0)),
    );
    report.beside(
        PART,
        "left of it when all locks are released",
        Value(locks.left, "B"),
        ("string with expiry", Value(strings.left, "B")),
        (Value(locks.left / locks.taken * 100.0, "%"), Target::AtMost(0.5)),
    );
}

/// Bytes per lock.
struct Memory {
    taken: f64,
    left: f64,
}

fn measure(subject: &Subject, fill: fn(&Subject, usize), empty: fn(&Subject, usize)) -> Memory {
    let before = subject.settled_memory();
    fill(subject, MILLION);
    let full = subject.settled_memory();
    empty(subject, MILLION);
    let after = subject.settled_memory();
    let keyspace = subject.info("keyspace");
    assert!(!keyspace.contains("db0"), "keys are left: {keyspace}");
    let per_lock = |bytes: i64| bytes as f64 / MILLION as f64;
    Memory { taken: per_lock(full - before), left: per_lock((after - before).max(0)) }
}
