//! How long after a release the next one has the lock.

use std::time::Instant;

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, named};
use crate::stats::median;
use crate::subject::Subject;
use crate::talker::{Talker, command};
use crate::value::Value;

const PART: &str = "grant";

/// Hand-overs in a round, and as many PINGs.
const TIMES: usize = 1_000;

pub fn run(bench: &mut Bench) {
    let module = Subject::with_module();
    let mut pinger = Talker::connect(module.port());
    let mut pair = [Worker::new(&module, "one"), Worker::new(&module, "two")];
    assert!(pair[0].talker.ask(&pair[0].claim), "the lock is free at first");
    let all = interleave(
        bench.options.rounds,
        vec![
            contender("grant", || median_us(|| handover(&mut pair))),
            contender("PING", || median_us(|| ping(&mut pinger))),
        ],
    );
    let (ours, theirs) = (named(&all, "grant"), named(&all, "PING"));
    bench.report.beside(
        PART,
        "from a release to the next one's grant",
        Value(ours.median(), "µs"),
        ("a PING's round trip", Value(theirs.median(), "µs")),
        (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.5)),
    );
}

struct Worker {
    talker: Talker,
    claim: Vec<u8>,
    release: Vec<u8>,
}

impl Worker {
    fn new(subject: &Subject, token: &str) -> Self {
        Self {
            talker: Talker::connect(subject.port()),
            claim: command(&format!("PRLOCK.CLAIM lock:grant PX 60000 TOKEN {token} BLOCK 0")),
            release: command(&format!("PRLOCK.RELEASE lock:grant {token}")),
        }
    }
}

fn median_us(once: impl FnMut() -> f64) -> f64 {
    let times: Vec<f64> = std::iter::repeat_with(once).take(TIMES).collect();
    median(&times)
}

fn ping(talker: &mut Talker) -> f64 {
    let ping = command("PING");
    let start = Instant::now();
    talker.ask(&ping);
    start.elapsed().as_secs_f64() * 1e6
}

/// The first of the pair holds the lock, the second waits; then they change places. In µs, from before the release is
/// sent until the grant is read.
fn handover(pair: &mut [Worker; 2]) -> f64 {
    let [holder, waiter] = pair;
    waiter.talker.send(&waiter.claim);
    // Its reply shows that the server has taken the claim as well, which came before.
    holder.talker.ask(&command("PING"));
    let start = Instant::now();
    holder.talker.send(&holder.release);
    assert!(waiter.talker.answer(), "the waiter was refused");
    let time = start.elapsed().as_secs_f64() * 1e6;
    assert!(holder.talker.answer(), "the release was refused");
    pair.swap(0, 1);
    time
}
