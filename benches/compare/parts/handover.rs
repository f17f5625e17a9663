//! Many workers that all want the same lock, and hold it for no time: how often it changes hands.
//!
//! After its turn every worker stands back as if it had just been refused: in the queue, for a pause, or for the next
//! message. So each grant is a hand-over, and nobody wins by taking again what it has just let go.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::report::{Report, Target};
use crate::stats::{fairness, median};
use crate::subject::Subject;
use crate::support::text;
use crate::talker::{Talker, command};
use crate::value::Value;

const PART: &str = "handover";

const WORKERS: usize = 16;
const DURATION: Duration = Duration::from_millis(600);

/// How long a subscriber waits for a message before it looks anyway.
const DEAF: Duration = Duration::from_millis(200);

const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
/// As Redisson does it: the release tells the waiters.
const RELEASE_AND_TELL: &str = "if redis.call('get',KEYS[1])==ARGV[1] then redis.call('del',KEYS[1]) \
                                redis.call('publish',KEYS[2],'free') return 1 end return 0";

pub fn run(bench: &mut Bench) {
    let module = Subject::with_module();
    let bare = Subject::without_module();
    let load = |body| text(&bare.ask(|conn| conn.ok(("SCRIPT", "LOAD", body))));
    let (release, release_and_tell) = (load(RELEASE), load(RELEASE_AND_TELL));
    let ways = [
        ("PRLOCK BLOCK", Way::Queue),
        ("polling every 50 ms", Way::Poll(Duration::from_millis(50), &release)),
        ("polling every 100 ms", Way::Poll(Duration::from_millis(100), &release)),
        ("publish/subscribe", Way::Listen(&release_and_tell)),
    ];
    let mut all: Vec<Vec<Outcome>> = ways.iter().map(|_| Vec::new()).collect();
    eprint!("        ");
    for round in 0..=bench.options.rounds {
        for ((_, way), outcomes) in ways.iter().zip(&mut all) {
            let outcome = contest(if matches!(way, Way::Queue) { &module } else { &bare }, *way);
            if round > 0 {
                outcomes.push(outcome);
            }
        }
        eprint!(".");
    }
    eprintln!();
    tell(&mut bench.report, &ways.map(|(name, _)| name), &all);
}

/// How a worker waits; and the script, by its hash, that releases.
#[derive(Clone, Copy)]
enum Way<'s> {
    Queue,
    Poll(Duration, &'s str),
    Listen(&'s str),
}

/// What a contest gave.
struct Outcome {
    grants_per_s: f64,
    fairness: f64,
    trips_per_grant: f64,
    cpu_us_per_grant: f64,
}

/// What a worker got out of it.
struct Turns {
    grants: u64,
    sent: u64,
}

fn contest(subject: &Subject, way: Way<'_>) -> Outcome {
    let start = Barrier::new(WORKERS + 1);
    let over = AtomicBool::new(false);
    let mut seconds = 0.0;
    let mut turns: Vec<Turns> = Vec::new();
    let cpu_us = subject.cpu_us_of(|| {
        turns = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|number| {
                    let (port, start, over) = (subject.port(), &start, &over);
                    scope.spawn(move || work(port, number, way, start, over))
                })
                .collect();
            start.wait();
            let began = Instant::now();
            thread::sleep(DURATION);
            over.store(true, Ordering::Relaxed);
            seconds = began.elapsed().as_secs_f64();
            workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
        });
    });
    let grants: u64 = turns.iter().map(|turn| turn.grants).sum();
    let sent: u64 = turns.iter().map(|turn| turn.sent).sum();
    let shares: Vec<f64> = turns.iter().map(|turn| turn.grants as f64).collect();
    Outcome {
        grants_per_s: grants as f64 / seconds,
        fairness: fairness(&shares),
        trips_per_grant: sent as f64 / grants.max(1) as f64,
        cpu_us_per_grant: cpu_us / grants.max(1) as f64,
    }
}

fn work(port: u16, number: usize, way: Way<'_>, start: &Barrier, over: &AtomicBool) -> Turns {
    match way {
        Way::Queue => stand_in_the_queue(port, number, start, over),
        Way::Poll(pause, release) => poll(port, number, pause, release, start, over),
        Way::Listen(release) => listen(port, number, release, start, over),
    }
}

fn stand_in_the_queue(port: u16, number: usize, start: &Barrier, over: &AtomicBool) -> Turns {
    let mut talker = Talker::connect(port);
    let claim = command(&format!("PRLOCK.CLAIM lock:hot PX 30000 TOKEN worker-{number} BLOCK 0"));
    let release = command(&format!("PRLOCK.RELEASE lock:hot worker-{number}"));
    let mut grants = 0;
    start.wait();
    while !over.load(Ordering::Relaxed) {
        assert!(talker.ask(&claim), "who waits without limit is granted");
        grants += 1;
        assert!(talker.ask(&release), "who holds it releases it");
    }
    Turns { grants, sent: talker.sent }
}

fn poll(port: u16, number: usize, pause: Duration, release: &str, start: &Barrier, over: &AtomicBool) -> Turns {
    let mut talker = Talker::connect(port);
    let release = command(&format!("EVALSHA {release} 1 lock:hot worker-{number}"));
    let claim = claim_by_set(number);
    let mut grants = 0;
    start.wait();
    while !over.load(Ordering::Relaxed) {
        if talker.ask(&claim) {
            grants += 1;
            assert!(talker.ask(&release), "who holds it releases it");
        }
        thread::sleep(pause.mul_f64(rand::random_range(0.5..1.5)));
    }
    Turns { grants, sent: talker.sent }
}

fn listen(port: u16, number: usize, release: &str, start: &Barrier, over: &AtomicBool) -> Turns {
    let mut talker = Talker::connect(port);
    let release = command(&format!("EVALSHA {release} 2 lock:hot news:hot worker-{number}"));
    let claim = claim_by_set(number);
    let mut listener = Talker::connect(port);
    listener.send(&command("SUBSCRIBE news:hot"));
    listener.hears_within(DEAF);
    let mut grants = 0;
    start.wait();
    while !over.load(Ordering::Relaxed) {
        if talker.ask(&claim) {
            grants += 1;
            assert!(talker.ask(&release), "who holds it releases it");
        }
        listener.hears_within(DEAF);
    }
    Turns { grants, sent: talker.sent }
}

fn claim_by_set(number: usize) -> Vec<u8> {
    command(&format!("SET lock:hot worker-{number} NX PX 30000"))
}

fn tell(report: &mut Report, names: &[&'static str], all: &[Vec<Outcome>]) {
    let of = |outcomes: &[Outcome], value: fn(&Outcome) -> f64| -> f64 {
        let values: Vec<f64> = outcomes.iter().map(value).collect();
        median(&values)
    };
    let ours = &all[0];
    let rate = of(ours, |outcome| outcome.grants_per_s);
    for (name, outcomes) in names.iter().zip(all).skip(1) {
        let theirs = of(outcomes, |outcome| outcome.grants_per_s);
        let target = match *name {
            "polling every 50 ms" => Target::AtLeast(10.0),
            "publish/subscribe" => Target::AtLeast(2.0),
            _ => Target::None,
        };
        report.beside(
            PART,
            "grants to 16 workers on one key",
            Value(rate, "/s"),
            (name, Value(theirs, "/s")),
            (Value(rate / theirs, "x"), target),
        );
        report.keep(format!("handover, {name}"), theirs);
    }
    report.keep("handover, PRLOCK BLOCK", rate);
    let fair = of(ours, |outcome| outcome.fairness);
    let trips = of(ours, |outcome| outcome.trips_per_grant);
    report.alone(PART, "fairness (Jain's index)", Value(fair, ""), Target::AtLeast(0.99));
    report.alone(PART, "round trips per grant", Value(trips, ""), Target::AtMost(2.0));
    for (name, outcomes) in names.iter().zip(all).skip(1) {
        let theirs = of(outcomes, |outcome| outcome.trips_per_grant);
        let finding = Value(trips / theirs, "x");
        report.beside(PART, "the same", Value(trips, ""), (name, Value(theirs, "")), (finding, Target::None));
    }
    let cpu = of(ours, |outcome| outcome.cpu_us_per_grant);
    for (name, outcomes) in names.iter().zip(all).skip(1) {
        let theirs = of(outcomes, |outcome| outcome.cpu_us_per_grant);
        let finding = Value(cpu / theirs, "x");
        report.beside(
            PART,
            "server time per grant",
            Value(cpu, "µs"),
            (name, Value(theirs, "µs")),
            (finding, Target::None),
        );
    }
}
