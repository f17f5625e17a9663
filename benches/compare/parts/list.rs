//! Looking at locks: this module's registry beside a walk over the keyspace.

use std::time::Instant;

use crate::bench::Bench;
use crate::fill::LOCKS_PER_HOLDER;
use crate::listing::{Listing, PREFIX};
use crate::report::Target;
use crate::rounds::{contender, interleave, named};
use crate::stats::median;
use crate::subject::Subject;
use crate::support::{Conn, bytes, items, text};
use crate::value::Value;

const PART: &str = "list";

/// Calls of PRLOCK.LIST in one sample: a single one is too short to be measured.
const CALLS: usize = 20;

/// How many keys one SCAN looks at: a large step, in SCAN's favour.
const SCAN_COUNT: usize = 1_000;

const BY_SCAN: &str = "SCAN, GET, PTTL";

pub fn run(bench: &mut Bench) {
    let (million, options, report) = bench.million();
    let (module, bare) = (&million.module.subject, &million.bare.subject);
    let (listing, scanning) = (Listing::new(&million.module), Listing::new(&million.bare));
    let mut walls = Walls::default();
    let Walls { page, holder, prefix, scan_holder, scan_prefix } = &mut walls;
    let all = interleave(
        options.rounds,
        vec![
            contender("page", || cpu_ms(module, CALLS, page, || listing.page())),
            contender("holder", || cpu_ms(module, CALLS, holder, || listing.holder())),
            contender("prefix", || cpu_ms(module, CALLS, prefix, || listing.prefix())),
            contender("holder by SCAN", || {
                cpu_ms(bare, 1, scan_holder, || bare.ask(|conn| scan_for_holder(conn, scanning.next_holder())))
            }),
            contender("prefix by SCAN", || {
                cpu_ms(bare, 1, scan_prefix, || bare.ask(|conn| scan_for_prefix(conn, &scanning.next_prefix())))
            }),
        ],
    );
    let ms = |name: &str| Value(named(&all, name).median(), "ms");
    report.alone(PART, "a page of 100 of 1,000,000", ms("page"), Target::AtMost(1.0));
    report.alone(PART, "the 1,000 locks of a holder, of 1,000,000", ms("holder"), Target::AtMost(4.0));
    report.alone(PART, "the 100 locks of a prefix, of 1,000,000", ms("prefix"), Target::AtMost(1.0));
    for (what, name, by_scan) in
        [("of a holder", "holder", "holder by SCAN"), ("of a prefix", "prefix", "prefix by SCAN")]
    {
        let faster = named(&all, by_scan).ratio_to(named(&all, name));
        report.beside(
            PART,
            format!("the locks {what}"),
            ms(name),
            (BY_SCAN, ms(by_scan)),
            (Value(faster, "x faster"), Target::AtLeast(100.0)),
        );
    }
    report.alone(PART, "a page, as its client sees it", Value(median(&walls.page), "ms"), Target::None);
    for (what, ours, theirs) in
        [("of a holder", &walls.holder, &walls.scan_holder), ("of a prefix", &walls.prefix, &walls.scan_prefix)]
    {
        let (ours, theirs) = (median(ours), median(theirs));
        report.beside(
            PART,
            format!("the locks {what}, as their client sees it"),
            Value(ours, "ms"),
            (BY_SCAN, Value(theirs, "ms")),
            (Value(theirs / ours, "x faster"), Target::None),
        );
    }
    for series in &all {
        report.keep(format!("list, {}", series.name), series.median());
    }
}

/// Wall times in ms.
#[derive(Default)]
struct Walls {
    page: Vec<f64>,
    holder: Vec<f64>,
    prefix: Vec<f64>,
    scan_holder: Vec<f64>,
    scan_prefix: Vec<f64>,
}

/// The server's time for one of `calls` calls, in ms; the client's goes into `walls`.
fn cpu_ms(subject: &Subject, calls: usize, walls: &mut Vec<f64>, call: impl Fn()) -> f64 {
    if calls > 1 {
        // This server stood still for seconds while the other one was scanned, and is slow to begin again: seen on virtual
        // machines. A scan itself takes longer than that matters.
        (0..calls).for_each(|_| call());
    }
    let us = subject.cpu_us_of(|| {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        walls.push(start.elapsed().as_secs_f64() * 1e3 / calls as f64);
    });
    us / 1e3 / calls as f64
}

/// What one does without a registry: walk over all keys, and ask for the value and the lifetime of those that fit.
fn scan_for_prefix(conn: &mut Conn, pattern: &str) {
    let mut found = 0;
    scan(conn, pattern, |conn, keys| {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.cmd("GET").arg(key).cmd("PTTL").arg(key);
        }
        let _: Vec<redis::Value> = pipe.query(conn).expect("GET and PTTL");
        found += keys.len();
    });
    assert!(found == PREFIX, "{found} keys instead of {PREFIX}");
}

/// The same for a holder, which only the value of each key can tell.
fn scan_for_holder(conn: &mut Conn, number: usize) {
    let mark = format!("{number:04x}");
    let mut found = 0;
    scan(conn, "lock:*", |conn, keys| {
        let mut gets = redis::pipe();
        for key in keys {
            gets.cmd("GET").arg(key);
        }
        let tokens: Vec<Vec<u8>> = gets.query(conn).expect("GET");
        let fits = |token: &Vec<u8>| token.ends_with(mark.as_bytes());
        let fitting: Vec<_> = keys.iter().zip(&tokens).filter(|(_, token)| fits(token)).map(|(key, _)| key).collect();
        let mut ttls = redis::pipe();
        for key in &fitting {
            ttls.cmd("PTTL").arg(key);
        }
        if !fitting.is_empty() {
            let _: Vec<i64> = ttls.query(conn).expect("PTTL");
        }
        found += fitting.len();
    });
    assert!(found == LOCKS_PER_HOLDER, "{found} keys instead of {LOCKS_PER_HOLDER}");
}

fn scan(conn: &mut Conn, pattern: &str, mut look_at: impl FnMut(&mut Conn, &[Vec<u8>])) {
    let mut cursor = "0".to_owned();
    loop {
        let reply = items(&conn.ok(("SCAN", &cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)));
        let keys: Vec<Vec<u8>> = items(&reply[1]).iter().map(bytes).collect();
        if !keys.is_empty() {
            look_at(conn, &keys);
        }
        cursor = text(&reply[0]);
        if cursor == "0" {
            return;
        }
    }
}
