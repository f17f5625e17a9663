//! What it costs to let the server make the token, and to leave a label.

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, named};
use crate::script::{Reply, Script, step};
use crate::subject::Subject;
use crate::value::Value;
use crate::words::{TTL_MS, holder, key, scattered, token};

const PART: &str = "generated";

const KEYS: usize = 100_000;

pub fn run(bench: &mut Bench) {
    let module = Subject::with_module();
    let claims = |options_for: &dyn Fn(usize) -> String| -> Script {
        scattered(KEYS)
            .map(|number| {
                step(&format!("PRLOCK.CLAIM {} PX {TTL_MS} {}", key(number), options_for(number)), Reply::Grant)
            })
            .collect()
    };
    let label = |number: usize| format!("HOLDER {}", holder(number % 100));
    let given = claims(&|number| format!("TOKEN {}", token(number, 0)));
    let made = claims(&|_| String::new());
    let labelled = claims(&label);
    let us = |script: &Script| {
        let us = module.us_per_command(script);
        module.flush();
        us
    };
    let all = interleave(
        bench.options.rounds,
        vec![
            contender("given", || us(&given)),
            contender("made", || us(&made)),
            contender("labelled", || us(&labelled)),
        ],
    );
    let given = named(&all, "given");
    for (name, what, target) in [
        ("made", "a claim with a generated token", Target::None),
        ("labelled", "a claim with a generated token and a holder", Target::AtMost(0.2)),
    ] {
        let ours = named(&all, name);
        bench.report.beside(
            PART,
            what,
            Value(ours.median(), "µs"),
            ("a claim with its token given", Value(given.median(), "µs")),
            (Value(ours.more_than(given), "µs more"), target),
        );
    }
}
