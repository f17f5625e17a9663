//! What a lock takes of the server's memory, and what of it comes back.

use crate::bench::Bench;
use crate::fill;
use crate::million::{Crowd, MILLION};
use crate::report::Target;
use crate::subject::Subject;
use crate::value::Value;

const PART: &str = "memory";

/// Empties both servers: the parts that look at the million come before.
pub fn run(bench: &mut Bench) {
    let (million, _, report) = bench.million();
    let (locks, strings) = (million.module.taken(), million.bare.taken());
    report.beside(
        PART,
        "a lock, its 20-byte holder and its place in the registry",
        Value(locks, "B"),
        ("string with expiry", Value(strings, "B")),
        (Value(locks / strings, "x"), Target::AtMost(2.0)),
    );
    let left_of_locks = left(&million.module, fill::release_locks);
    let left_of_strings = left(&million.bare, fill::delete_strings);
    report.beside(
        PART,
        "what is left of it when all are released",
        Value(left_of_locks, "B"),
        ("string with expiry", Value(left_of_strings, "B")),
        (Value(left_of_locks / locks * 100.0, "%"), Target::AtMost(0.5)),
    );
}

/// Empties a server by `empty`; the bytes per lock that it still holds then.
fn left(crowd: &Crowd, empty: fn(&Subject, usize)) -> f64 {
    empty(&crowd.subject, MILLION);
    let after = crowd.subject.settled_memory();
    let keyspace = crowd.subject.info("keyspace");
    assert!(!keyspace.contains("db0"), "keys are left: {keyspace}");
    (after - crowd.empty).max(0) as f64 / MILLION as f64
}
