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
    let label = |number: usize| format!("HOLDER {}", holder(number % 100));
    let options: [(&'static str, &dyn Fn(usize) -> String); 3] = [
        ("given", &|number| format!("TOKEN {}", token(number, 0))),
        ("made", &|_| String::new()),
        ("labelled", &label),
    ];
    // As in the cycle: each claim's lock is gone before the next claim. And with all of them held at once, where the
    // registry has put them in order.
    for (shape, frees_each) in [("", true), (", 100,000 held at once", false)] {
        let script = |options_for: &dyn Fn(usize) -> String| -> Script {
            scattered(KEYS)
                .flat_map(|number| {
                    let claim = format!("PRLOCK.CLAIM {} PX {TTL_MS} {}", key(number), options_for(number));
                    let free = frees_each.then(|| step(&format!("DEL {}", key(number)), Reply::One));
                    std::iter::once(step(&claim, Reply::Grant)).chain(free)
                })
                .collect()
        };
        let us_per_claim = |script: &Script| {
            let us = module.us_per_command(script);
            module.flush();
            us * if frees_each { 2.0 } else { 1.0 }
        };
        let scripts = options.map(|(name, options_for)| (name, script(options_for)));
        let all = interleave(
            bench.options.rounds,
            scripts.iter().map(|(name, script)| contender(name, || us_per_claim(script))).collect(),
        );
        let given = named(&all, "given");
        let target = if frees_each { Target::AtMost(0.2) } else { Target::None };
        for (name, what, target) in [
            ("made", "a claim with a generated token", Target::None),
            ("labelled", "a claim with a generated token and a holder", target),
        ] {
            let ours = named(&all, name);
            bench.report.beside(
                PART,
                format!("{what}{shape}"),
                Value(ours.median(), "µs"),
                ("a claim with its token given", Value(given.median(), "µs")),
                (Value(ours.more_than(given), "µs more"), target),
            );
        }
    }
}
