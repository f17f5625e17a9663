//! Looking at locks: this module's registry beside a walk over the keyspace.

use std::cell::Cell;
use std::time::Instant;

use crate::fill::{self, LOCKS_PER_HOLDER};
use crate::options::Options;
use crate::parts::memory::MILLION;
use crate::report::{Report, Target, Value};
use crate::rounds::{Series, contender, interleave, named};
use crate::stats::median;
use crate::subject::Subject;
use crate::support::{Conn, bytes, items, text};
use crate::words::{holder, key};

const PART: &str = "list";

/// Calls of PRLOCK.LIST in one sample: a single one is too short to be measured.
const CALLS: usize = 20;
const PAGE: usize = 100;

/// How many keys one SCAN looks at: a large step, in SCAN's favour.
const SCAN_COUNT: usize = 1_000;

pub fn run(options: &Options, report: &mut Report) {
    let module = Subject::with_module();
    fill::with_locks(&module, MILLION);
    let bare = Subject::without_module();
    fill::with_strings(&bare, MILLION);

    // Another page, holder or prefix each time, or the processor's caches would make it cheaper than it is.
    let turn = Cell::new(0);
    let next = || {
        turn.set(turn.get() + 7_919);
        turn.get()
    };
    let page = || listed(&module, PAGE, ("AFTER", key(next() * PAGE % MILLION)), ("COUNT", PAGE.to_string()));
    let of_holder = || {
        listed(
            &module,
            LOCKS_PER_HOLDER,
            ("HOLDER", holder(next() % (MILLION / LOCKS_PER_HOLDER))),
            ("MATCH", "*".to_owned()),
        )
    };
    let of_prefix = || listed(&module, 100, ("MATCH", prefix(next())), ("COUNT", "1000".to_owned()));
    let mut walls = Walls::default();
    let Walls { page: page_wall, holder: holder_wall, prefix: prefix_wall, scan_holder, scan_prefix } = &mut walls;
    let all = interleave(
        options.rounds,
        vec![
            contender("page", || cpu_ms(&module, CALLS, page_wall, page)),
            contender("holder", || cpu_ms(&module, CALLS, holder_wall, of_holder)),
            contender("prefix", || cpu_ms(&module, CALLS, prefix_wall, of_prefix)),
            contender("holder by SCAN", || {
                cpu_ms(&bare, 1, scan_holder, || {
                    bare.ask(|conn| scan_for_holder(conn, next() % (MILLION / LOCKS_PER_HOLDER)))
                })
            }),
            contender("prefix by SCAN", || {
                cpu_ms(&bare, 1, scan_prefix, || bare.ask(|conn| scan_for_prefix(conn, &prefix(next()))))
            }),
        ],
    );
    let by_scan = "SCAN, GET, PTTL";
    report.alone(PART, "a page of 100 of 1,000,000", ms(named(&all, "page")), Target::AtMost(1.0));
    for (name, what, limit_ms) in
        [("holder", "the 1,000 locks of a holder", 4.0), ("prefix", "the 100 locks of a prefix", 1.0)]
    {
        let (ours, theirs) = (named(&all, name), named(&all, &format!("{name} by SCAN")));
        report.alone(PART, format!("{what}, of 1,000,000"), ms(ours), Target::AtMost(limit_ms));
        let faster = Value(1.0 / ours.ratio_to(theirs), "x faster");
        report.beside(
            PART,
            format!("{what}, beside SCAN"),
            ms(ours),
            (by_scan, ms(theirs)),
            (faster, Target::AtLeast(100.0)),
        );
    }
    for (what, ours, theirs) in [
        ("the same as the client sees it: a page", &walls.page, None),
        ("the locks of a holder", &walls.holder, Some(&walls.scan_holder)),
        ("the locks of a prefix", &walls.prefix, Some(&walls.scan_prefix)),
    ] {
        match theirs {
            None => report.alone(PART, what, Value(median(ours), "ms"), Target::None),
            Some(theirs) => report.beside(
                PART,
                what,
                Value(median(ours), "ms"),
                (by_scan, Value(median(theirs), "ms")),
                (Value(median(theirs) / median(ours), "x faster"), Target::None),
            ),
        }
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

fn ms(series: &Series) -> Value {
    Value(series.median(), "ms")
}

/// The server's time for one of `calls` calls, in ms; the client's goes into `walls`.
fn cpu_ms(subject: &Subject, calls: usize, walls: &mut Vec<f64>, call: impl Fn()) -> f64 {
    let us = subject.cpu_us_of(|| {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        walls.push(start.elapsed().as_secs_f64() * 1e3 / calls as f64);
    });
    us / 1e3 / calls as f64
}

/// The digits of a key but the last two, which 100 keys share.
fn prefix(number: usize) -> String {
    let mut pattern = key(number % MILLION);
    pattern.truncate(pattern.len() - 2);
    pattern + "*"
}

/// Runs PRLOCK.LIST, which must find `due` locks.
fn listed(subject: &Subject, due: usize, first: (&str, String), second: (&str, String)) {
    let found = subject.ask(|conn| items(&conn.ok(("PRLOCK.LIST", first, second))).len());
    assert!(found == due, "{found} locks instead of {due}");
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
    assert!(found == 100, "{found} keys instead of 100");
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
        let fitting: Vec<&Vec<u8>> = keys
            .iter()
            .zip(&tokens)
            .filter(|(_, token)| token.ends_with(mark.as_bytes()))
            .map(|(key, _)| key)
            .collect();
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
