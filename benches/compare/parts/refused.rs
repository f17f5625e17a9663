//! Commands that are refused: what a lock costs those that don't get it.

use crate::options::Options;
use crate::report::{Report, Target, Value};
use crate::rounds::{contender, interleave, named};
use crate::script::{Script, reply, step};
use crate::subject::Subject;
use crate::words::{TTL_MS, key, scattered, token};

const PART: &str = "refused";

const KEYS: usize = 100_000;

pub fn run(options: &Options, report: &mut Report) {
    let module = Subject::with_module();
    let bare = Subject::without_module();
    let commands = |line: &dyn Fn(&str, &str) -> String, reply_bytes: usize, owner: usize| -> Script {
        scattered(KEYS).map(|number| step(&line(&key(number), &token(number, owner)), reply_bytes)).collect()
    };
    let (holder, stranger) = (1, 2);
    module.play(&commands(&|k, t| format!("PRLOCK.CLAIM {k} PX {TTL_MS} TOKEN {t}"), reply::GRANT, holder));
    bare.play(&commands(&|k, t| format!("SET {k} {t} NX PX {TTL_MS}"), reply::OK, holder));

    let claim = commands(&|k, t| format!("PRLOCK.CLAIM {k} PX {TTL_MS} TOKEN {t}"), reply::NULL, stranger);
    let renew = commands(&|k, t| format!("PRLOCK.RENEW {k} {t} PX {TTL_MS}"), reply::DIGIT, stranger);
    let release = commands(&|k, t| format!("PRLOCK.RELEASE {k} {t}"), reply::DIGIT, stranger);
    let set_nx = commands(&|k, t| format!("SET {k} {t} NX PX {TTL_MS}"), reply::NULL, stranger);
    let all = interleave(
        options.rounds,
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
        report.beside(
            PART,
            format!("a refused {name}"),
            Value(ours.median(), "µs"),
            ("a refused SET NX", Value(theirs.median(), "µs")),
            (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.2)),
        );
    }
}
