//! How long a server with many locks takes to start.

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, named};
use crate::value::Value;

const PART: &str = "start";

/// Loads the snapshots that were written when the servers were filled.
pub fn run(bench: &mut Bench) {
    let (million, options, report) = bench.million();
    let (module, bare) = (&mut million.module.subject, &mut million.bare.subject);
    let all = interleave(
        options.rounds,
        vec![contender("locks", || module.reload_cpu_ms()), contender("strings", || bare.reload_cpu_ms())],
    );
    for subject in [&million.module.subject, &million.bare.subject] {
        let keyspace = subject.info("keyspace");
        assert!(keyspace.contains("keys=1000000,"), "not all was loaded: {keyspace}");
    }
    let (ours, theirs) = (named(&all, "locks"), named(&all, "strings"));
    report.beside(
        PART,
        "start with a snapshot of 1,000,000 locks",
        Value(ours.median(), "ms"),
        ("strings with expiry", Value(theirs.median(), "ms")),
        (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.5)),
    );
}
