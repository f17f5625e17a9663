//! What waiting costs those who have nothing to do with it: while somebody waits, the module looks at the words of each
//! command.

use std::cell::RefCell;
use std::time::Duration;

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, joined, named};
use crate::script::{Reply, Script, step};
use crate::subject::{Subject, field};
use crate::talker::{Talker, command};
use crate::value::Value;
use crate::words::{scattered, token};

const PART: &str = "bystander";

/// The other application's.
const KEYS: usize = 100_000;
const REPEATS: usize = 3;
/// Behind the last waiter the module goes on looking until its next tick, after 25 ms.
const UNTIL_IDLE: Duration = Duration::from_millis(100);

pub fn run(bench: &mut Bench) {
    let module = Subject::with_module();
    let claim = format!("PRLOCK.CLAIM awaited PX 86400000 TOKEN {}", token(0, 0));
    module.play(&Script::from_iter([step(&claim, Reply::Grant)]));
    let set: Script =
        scattered(KEYS).map(|at| step(&format!("SET data:{at:09} {}", token(at, 0)), Reply::Ok)).collect();
    let get: Script = scattered(KEYS).map(|at| step(&format!("GET data:{at:09}"), Reply::Token)).collect();
    module.play(&set);
    // The same server in both cases, since two that do the same differ.
    let waiter: RefCell<Option<Talker>> = RefCell::new(None);
    let while_waiting = |waits: bool, script: &Script| {
        let mut waiter = waiter.borrow_mut();
        if waits != waiter.is_some() {
            *waiter = waits.then(|| wait(&module));
            std::thread::sleep(UNTIL_IDLE);
            let blocked = field(&module.info("clients"), "blocked_clients").to_owned();
            assert_eq!(blocked, if waits { "1" } else { "0" });
        }
        module.us_per_command(script)
    };
    let mut contenders = Vec::new();
    for _ in 0..REPEATS {
        contenders.push(contender("GET waited", || while_waiting(true, &get)));
        contenders.push(contender("SET waited", || while_waiting(true, &set)));
        contenders.push(contender("GET", || while_waiting(false, &get)));
        contenders.push(contender("SET", || while_waiting(false, &set)));
    }
    let all = joined(interleave(bench.options.rounds, contenders));
    for name in ["GET", "SET"] {
        let (ours, theirs) = (named(&all, &format!("{name} waited")), named(&all, name));
        bench.report.beside(
            PART,
            format!("{name} of another application while somebody waits"),
            Value(ours.median(), "µs"),
            ("while nobody waits", Value(theirs.median(), "µs")),
            (Value(ours.ratio_to(theirs), "x"), Target::None),
        );
    }
}

fn wait(module: &Subject) -> Talker {
    let mut talker = Talker::connect(module.port());
    talker.ask(&command("PING"));
    talker.send(&command("PRLOCK.CLAIM awaited PX 60000 BLOCK 0"));
    talker
}
