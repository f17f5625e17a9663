//! Whether the length of the queue makes a release dearer.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::bench::Bench;
use crate::report::Target;
use crate::rounds::{contender, interleave, joined, named};
use crate::script::{Reply, Script, Step, step};
use crate::subject::{Subject, field};
use crate::support::Server;
use crate::talker::{Talker, command};
use crate::value::Value;

const PART: &str = "waiters";

/// On the one key.
const CROWD: usize = 10_000;
/// Releases in a round; and as many keys with one waiter each.
const RELEASES: usize = 1_000;

/// How often that is done in a round.
const REPEATS: usize = 3;

/// More than the processor's caches hold. The connections of the crowd are too many to stay there from one turn to the
/// next, and those of the others are not: so all turns begin without them.
const SWEPT_BYTES: usize = 100_000_000;

/// Each waiter is a connection; and some for the server itself.
pub const DESCRIPTORS: u64 = (CROWD + RELEASES + 500) as u64;

pub fn run(bench: &mut Bench) {
    let max_clients = (CROWD + RELEASES + 100).to_string();
    let module = Subject::of(Server::builder().config("maxclients", &max_clients));
    let crowd = Queue::new(&module, CROWD, 1);
    let pairs = Queue::new(&module, RELEASES, RELEASES);
    let blocked = field(&module.info("clients"), "blocked_clients").to_owned();
    assert!(blocked == (CROWD + RELEASES).to_string(), "{blocked} are waiting");
    module.ask(|conn| conn.ok(("SETRANGE", "sweep", SWEPT_BYTES, "x")));
    let (crowd, pairs) = (RefCell::new(crowd), RefCell::new(pairs));
    let mut contenders = Vec::new();
    for _ in 0..REPEATS {
        contenders.push(contender("crowd", || crowd.borrow_mut().us_per_release(&module)));
        contenders.push(contender("one", || pairs.borrow_mut().us_per_release(&module)));
    }
    let all = joined(interleave(bench.options.rounds, contenders));
    let (ours, theirs) = (named(&all, "crowd"), named(&all, "one"));
    bench.report.beside(
        PART,
        "a release with 10,000 waiters on the key",
        Value(ours.median(), "µs"),
        ("with one waiter", Value(theirs.median(), "µs")),
        (Value(ours.ratio_to(theirs), "x"), Target::AtMost(1.2)),
    );
}

/// Connections that wait, spread over some keys; each key has a holder.
struct Queue {
    keys: usize,
    /// Who holds, in the order in which they are to release; one for each key.
    holders: VecDeque<Holding>,
    waiting: VecDeque<Waiting>,
    /// For tokens that nobody has had.
    claims: usize,
}

struct Holding {
    key: String,
    token: String,
}

struct Waiting {
    talker: Talker,
    claim: Holding,
}

impl Queue {
    fn new(subject: &Subject, size: usize, keys: usize) -> Self {
        let mut queue = Self { keys, holders: VecDeque::new(), waiting: VecDeque::new(), claims: 0 };
        let script: Script = (0..keys).map(|_| queue.first_claim()).collect();
        subject.play(&script);
        for _ in 0..size {
            let mut talker = Talker::connect(subject.port());
            // Afterwards the server has accepted the connection.
            talker.ask(&command("PING"));
            queue.line_up(subject, talker);
        }
        queue
    }

    fn next_claim(&mut self) -> Holding {
        self.claims += 1;
        let (key, token) = (self.claims % self.keys, self.claims);
        Holding { key: format!("lock:queue:{}:{key}", self.keys), token: format!("{token:032x}") }
    }

    fn first_claim(&mut self) -> Step {
        let claim = self.next_claim();
        let step = step(&format!("PRLOCK.CLAIM {} PX 3600000 TOKEN {}", claim.key, claim.token), Reply::Grant);
        self.holders.push_back(claim);
        step
    }

    fn line_up(&mut self, subject: &Subject, mut talker: Talker) {
        let claim = self.next_claim();
        talker.send(&command(&format!("PRLOCK.CLAIM {} PX 3600000 TOKEN {} BLOCK 0", claim.key, claim.token)));
        // Its reply shows that the server has taken the claim as well, which came before.
        subject.ask(|conn| conn.ok(("PING",)));
        self.waiting.push_back(Waiting { talker, claim });
    }

    /// The server's time for a release and the grant to the next in the queue, who goes to the end of it then.
    fn us_per_release(&mut self, subject: &Subject) -> f64 {
        let mut granted = Vec::new();
        let mut script = Script::default();
        for _ in 0..RELEASES {
            let holding = self.holders.pop_front().expect("a holder");
            script.push(&step(&format!("PRLOCK.RELEASE {} {}", holding.key, holding.token), Reply::One));
            let waiting = self.waiting.pop_front().expect("a waiter");
            self.holders.push_back(waiting.claim);
            granted.push(waiting.talker);
        }
        subject.ask(|conn| conn.ok(("BITCOUNT", "sweep")));
        let us = subject.cpu_us_of(|| {
            subject.play(&script);
            for talker in &mut granted {
                assert!(talker.answer(), "a waiter was refused");
            }
        });
        for talker in granted {
            self.line_up(subject, talker);
        }
        us / RELEASES as f64
    }
}
