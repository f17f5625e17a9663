//! Commands that are refused: what a lock costs those that don't get it.

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, named};
use crate::script::{Reply, Script, step};
use crate::subject::Subject;
use crate::value::Value;
use crate::words::{TTL_MS, key, scattered, token};

const PART: &str = "refused";

const KEYS: usize = 100_000;

pub fn run(bench: &mut Bench) {
    let module = Subject::with_module();
    let bare = Subject::without_module();
    let commands = |line: &dyn Fn(&str, &str) -> String, reply: Reply, owner: usize| -> Script {
        scattered(KEYS).map(|number| step(&line(&key(number), &token(number, owner)), reply)).collect()
    };
    let (holder, stranger) = (1, 2);
    module.play(&commands(&|k, t| format!("PRLOCK.CLAIM {k} PX {TTL_MS} TOKEN {t}"), Reply::Grant, holder));
    bare.play(&commands(&|k, t| format!("SET {k} {t} NX PX {TTL_MS}"), Reply::Ok, holder));

    let claim = commands(&|k, t| format!("PRLOCK.CLAIM {k} PX {TTL_MS} TOKEN {t}"), Reply::Null, stranger);
    let renew = commands(&|k, t| format!("PRLOCK.RENEW {k} {t} PX {TTL_MS}"), Reply::Zero, stranger);
    let release = commands(&|k, t| format!("PRLOCK.RELEASE {k} {t}"), Reply::Zero, stranger);
    let set_nx = commands(&|k, t| format!("SET {k} {t} NX PX {TTL_MS}"), Reply::Null, stranger);
    let all = interleave(
        bench.options.rounds,
        vec![
            contender("CLAIM", || module.us_per_command(&claim)),
            contender("RENEW", || module.us_per_command(&renew)),
            contender("RELEASE", || module.us_per_command(&release)),
            contender("SET NX", || bare.us_per_command(&set_nx)),
        ],
    );
    let theirs = named(&all, "SET NX");
    for name in ["CLAIM", "RENEW", "RELEASE"] {
        let ours = named(&all, name);
        bench.report.beside(
            PART,
            format!("a refused {name}"),
            Value(ours.median(), "µs"),
            ("a refused SET NX", Value(theirs.median(), "µs")),
            (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.2)),
        );
    }
}
