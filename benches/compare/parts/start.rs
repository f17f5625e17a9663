//! How long a server with many locks takes to start, and what it takes from another application that it also serves.
//!
//! Two servers that do the same differ by some percent from start to start, by where their memory happens to lie. So the
//! other application is measured anew after each start. And the more memory is in use, the less of it the processor's
//! caches reach, whatever lies in it: the third server tells this apart from what the module does.

use std::cell::RefCell;

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, joined, named};
use crate::script::{Reply, Script, step};
use crate::subject::Subject;
use crate::value::Value;
use crate::words::{scattered, token};

const PART: &str = "start";

/// The other application's. With a million locks beside them the server's table needs not grow, which would take long.
const KEYS: usize = 40_000;

/// How often the other application's commands are repeated after a start.
const REPEATS: usize = 5;

/// Loads the snapshots that were written when the servers were filled.
pub fn run(bench: &mut Bench) {
    let (million, options, report) = bench.million();
    let module = RefCell::new(&mut million.module.subject);
    let bare = RefCell::new(&mut million.bare.subject);
    let heavy = RefCell::new(&mut million.heavy.as_mut().expect("made for this part").subject);
    let set: Script =
        scattered(KEYS).map(|at| step(&format!("SET data:{at:09} {}", token(at, 0)), Reply::Ok)).collect();
    let get: Script = scattered(KEYS).map(|at| step(&format!("GET data:{at:09}"), Reply::Token)).collect();
    let mut contenders = vec![
        contender("locks", || started(&mut module.borrow_mut(), &set)),
        contender("strings", || started(&mut bare.borrow_mut(), &set)),
        contender("longer strings", || started(&mut heavy.borrow_mut(), &set)),
    ];
    for _ in 0..REPEATS {
        contenders.push(contender("SET", || module.borrow().us_per_command(&set)));
        contenders.push(contender("SET without", || bare.borrow().us_per_command(&set)));
        contenders.push(contender("SET heavy", || heavy.borrow().us_per_command(&set)));
        contenders.push(contender("GET", || module.borrow().us_per_command(&get)));
        contenders.push(contender("GET without", || bare.borrow().us_per_command(&get)));
        contenders.push(contender("GET heavy", || heavy.borrow().us_per_command(&get)));
    }
    let all = joined(interleave(options.rounds, contenders));
    let (ours, theirs) = (named(&all, "locks"), named(&all, "strings"));
    report.beside(
        PART,
        "start with a snapshot of 1,000,000 locks",
        Value(ours.median(), "ms"),
        ("strings with expiry", Value(theirs.median(), "ms")),
        (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.5)),
    );
    for name in ["GET", "SET"] {
        let others = [
            ("without", "string locks, no module", Target::AtMost(1.02)),
            ("heavy", "no module, as much memory in use", Target::None),
        ];
        for (suffix, other, target) in others {
            let (ours, theirs) = (named(&all, name), named(&all, &format!("{name} {suffix}")));
            report.beside(
                PART,
                format!("{name} of another application beside 1,000,000 locks"),
                Value(ours.median(), "µs"),
                (other, Value(theirs.median(), "µs")),
                (Value(ours.ratio_to(theirs), "x"), target),
            );
        }
    }
}

/// Starts the server anew, and sets the other application's keys; the time of the start in ms.
fn started(subject: &mut Subject, set: &Script) -> f64 {
    let ms = subject.reload_cpu_ms();
    let keyspace = subject.info("keyspace");
    assert!(keyspace.contains("keys=1000000,"), "not all was loaded: {keyspace}");
    subject.play(set);
    ms
}
