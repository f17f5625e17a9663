//! What becomes dearer when there are more locks.
//!
//! Plain strings become dearer as well, since fewer of them fit into the processor's caches. So a growth is set beside
//! theirs, and what O(log n) allows comes on top.

use crate::bench::Bench;
use crate::fill;
use crate::listing::Listing;
use crate::million::{Crowd, MILLION};
use crate::recipes::{self, Recipe};
use crate::report::Target;
use crate::rounds::{Series, contender, interleave};
use crate::script::Script;
use crate::subject::Subject;
use crate::value::Value;
use crate::words::{key, scattered};

const PART: &str = "growth";

pub const SIZES: [usize; 3] = [10_000, 100_000, MILLION];

/// Keys that live through a cycle in each sample, among those that are held.
const KEYS: usize = 20_000;
/// Calls of PRLOCK.LIST in each sample.
const CALLS: usize = 20;

pub const CYCLE: &str = "claim, renew, release";
pub const PLAIN_CYCLE: &str = "SET NX, PEXPIRE, DEL";
pub const PAGE: &str = "a page of 100";
pub const HOLDER: &str = "1,000 locks of a holder";

/// What is measured at each size, in this order.
const WHATS: [&str; 4] = [CYCLE, PLAIN_CYCLE, PAGE, HOLDER];

pub fn run(bench: &mut Bench) {
    let small = SIZES[..2].iter().map(|&count| {
        let module = Crowd::of(Subject::with_module(), count, fill::with_locks);
        (module, Crowd::of(Subject::without_module(), count, fill::with_strings))
    });
    let small: Vec<(Crowd, Crowd)> = small.collect();
    let (million, options, report) = bench.million();
    let mut sizes: Vec<(&Crowd, &Crowd)> = small.iter().map(|(module, bare)| (module, bare)).collect();
    sizes.push((&million.module, &million.bare));

    let mut contenders = Vec::new();
    for &(module, bare) in &sizes {
        let (ours, theirs) = (among(module, &recipes::prlock()), among(bare, &recipes::plain()));
        let (pages, holders) = (Listing::new(module), Listing::new(module));
        contenders.push(contender(CYCLE, move || module.subject.us_per_command(&ours) * 3.0));
        contenders.push(contender(PLAIN_CYCLE, move || bare.subject.us_per_command(&theirs) * 3.0));
        contenders.push(contender(PAGE, move || us_per_call(module, || pages.page())));
        contenders.push(contender(HOLDER, move || us_per_call(module, || holders.holder())));
    }
    let all = interleave(options.rounds, contenders);
    // From the smallest to the largest.
    let last = (SIZES.len() - 1) * WHATS.len();
    let growth = |at: usize| -> f64 { all[last + at].ratio_to(&all[at]) };
    let log = (SIZES[2] as f64).ln() / (SIZES[0] as f64).ln();
    let plain = growth(1);
    for at in [0, 2, 3] {
        report.beside(
            PART,
            format!("{}, 10,000 to 1,000,000 locks", WHATS[at]),
            Value(growth(at), "x"),
            ("plain strings", Value(plain, "x")),
            (Value(growth(at) / plain, "x"), Target::AtMost(log)),
        );
    }
    let taken = |at: usize| (sizes[at].0.taken(), sizes[at].1.taken());
    let (locks, strings) = (taken(2).0 / taken(0).0, taken(2).1 / taken(0).1);
    report.beside(
        PART,
        "bytes per lock, 10,000 to 1,000,000 locks",
        Value(locks, "x"),
        ("plain strings", Value(strings, "x")),
        (Value(locks / strings, "x"), Target::AtMost(log)),
    );
    for (at, size) in SIZES.iter().enumerate() {
        let medians = all[at * WHATS.len()..].iter().take(WHATS.len()).map(Series::median);
        for (what, median) in WHATS.iter().zip(medians) {
            report.keep(format!("growth, {what}, {size}"), median);
        }
        report.keep(format!("growth, bytes per lock, {size}"), taken(at).0);
    }
}

/// A script with keys that lie among those of the crowd.
fn among(crowd: &Crowd, recipe: &Recipe) -> Script {
    let count = crowd.count;
    let place = |number: usize| number * (count / 1_000) / (KEYS / 1_000);
    recipe.key_by_key(scattered(KEYS).map(|number| format!("{}-{number}", key(place(number)))))
}

/// The server's time for a call, in µs.
fn us_per_call(crowd: &Crowd, call: impl Fn()) -> f64 {
    let us = crowd.subject.cpu_us_of(|| {
        for _ in 0..CALLS {
            call();
        }
    });
    us / CALLS as f64
}
