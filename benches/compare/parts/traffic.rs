//! What the module costs those that have nothing to do with it.

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, named};
use crate::script::{Reply, Script, step};
use crate::value::Value;
use crate::words::{scattered, token};

const PART: &str = "traffic";

const KEYS: usize = 100_000;

/// A few percent are to be seen: more rounds than elsewhere.
const TIMES_THE_ROUNDS: usize = 3;

pub fn run(bench: &mut Bench) {
    let (million, options, report) = bench.million();
    let (module, bare) = (&million.module.subject, &million.bare.subject);
    let set: Script =
        scattered(KEYS).map(|number| step(&format!("SET data:{number:09} {}", token(number, 0)), Reply::Ok)).collect();
    let get: Script = scattered(KEYS).map(|number| step(&format!("GET data:{number:09}"), Reply::Token)).collect();
    let all = interleave(
        options.rounds * TIMES_THE_ROUNDS,
        vec![
            contender("SET", || module.us_per_command(&set)),
            contender("SET without", || bare.us_per_command(&set)),
            contender("GET", || module.us_per_command(&get)),
            contender("GET without", || bare.us_per_command(&get)),
        ],
    );
    let data = || scattered(KEYS).map(|number| step(&format!("DEL data:{number:09}"), Reply::One)).collect();
    module.play(&data());
    bare.play(&data());
    for name in ["GET", "SET"] {
        let (ours, theirs) = (named(&all, name), named(&all, &format!("{name} without")));
        report.beside(
            PART,
            format!("{name} of another application, 1,000,000 locks held"),
            Value(ours.median(), "µs"),
            ("a server of strings", Value(theirs.median(), "µs")),
            (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.02)),
        );
    }
}
