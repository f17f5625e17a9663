//! What waiting costs, and what a storm of waiters leaves behind: nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{PATIENCE, Raw, Server, Value, cmd, grant, int, slowed_share, wait_until};

/// One at a time: two tests with ten thousand connections each would not find enough files to open.
static CROWDED: Mutex<()> = Mutex::new(());

/// A server for more clients than are let in by default, and the files that this process needs for as many.
pub fn spacious() -> (Server, MutexGuard<'static, ()>) {
    const FILES: u64 = 13_000;
    let turn = CROWDED.lock().unwrap_or_else(PoisonError::into_inner);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open files");
    assert!(hard >= FILES, "this test opens {FILES} files, and `ulimit -Hn` says {hard}");
    if soft < FILES {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raise the limit of open files");
    }
    (Server::builder().config("maxclients", "12000").start(), turn)
}

/// Connections that each wait for the key that `key` names, without limit. Many at a time: none is looked at alone.
pub fn crowd(server: &Server, count: usize, key: impl Fn(usize) -> String) -> Vec<Raw> {
    let before = server.stat("waiters");
    let crowd: Vec<Raw> = (0..count)
        .map(|number| {
            let mut raw = server.raw();
            raw.send_command(("PRLOCK.CLAIM", key(number), "PX", 60_000, "BLOCK", 0));
            raw
        })
        .collect();
    wait_until("all to wait", PATIENCE, || (server.stat("waiters") == before + count as i64).then_some(()));
    crowd
}

const ROUNDS: usize = 300;

/// Microseconds of processor time of the server for one round on `key`: a steal, and the release that hands the lock on
/// and answers the next.
fn round_cost_us(server: &Server, key: &str) -> f64 {
    let mut conn = server.conn();
    let before = server.processor_ms();
    for _ in 0..ROUNDS {
        // The lock is with a waiter whose token is not known here.
        conn.granted(&format!("PRLOCK.CLAIM {key} PX 600000 TOKEN a STEAL"));
        assert_eq!(conn.int(&format!("PRLOCK.RELEASE {key} a")), 1);
    }
    (server.processor_ms() - before) * 1_000.0 / ROUNDS as f64
}

/// CASES 38, and ten times that: a release costs the same with ten thousand waiters as with few. On one server, with waiters
/// that came about the same time: a server with fewer clients, or clients that came just now, would have them in the
/// processor's caches.
#[test]
fn a_release_costs_the_same_however_many_wait() {
    const MANY: usize = 10_000;
    const TRIES: usize = 5;
    let (server, _turn) = spacious();
    let few = |number: usize| format!("few-{number}");
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM many PX 600000 TOKEN a");
    let (mut with_few, mut with_many) = (Vec::new(), Vec::new());
    for number in 0..TRIES {
        conn.granted(&format!("PRLOCK.CLAIM {} PX 600000 TOKEN a", few(number)));
        with_many.extend(crowd(&server, ROUNDS, |_| "many".into()));
        with_few.extend(crowd(&server, ROUNDS, |_| few(number)));
    }
    with_many.extend(crowd(&server, MANY - with_many.len(), |_| "many".into()));
    // Other processes disturb, but a cost that grows with the waiters would show in every try.
    let mut tries = Vec::new();
    for number in 0..TRIES {
        let cost_of_few = round_cost_us(&server, &few(number));
        assert_eq!(conn.lock_number("many", "waiters"), MANY as i64);
        tries.push((cost_of_few, round_cost_us(&server, "many")));
        // Those who were granted are the first of their crowds; as many come anew.
        with_few.drain(..ROUNDS);
        with_many.drain(..ROUNDS);
        with_many.extend(crowd(&server, ROUNDS, |_| "many".into()));
    }
    println!("us of processor time for a round, with at most {ROUNDS} waiters and with {MANY}: {tries:.1?}");
    assert!(tries.iter().any(|(few, many)| *many <= few * 1.2), "{tries:?}");
    drop(with_many);
    // Their memory is asked for in smaller tests: the server keeps two helpers with buffers for each blocked client, and
    // gives back 500 a second.
    server.wait_nobody_waits();
}

/// One release grants one, whoever else waits.
#[test]
fn one_release_is_one_grant() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiters = crowd(&server, 1_000, |_| "k".into());
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    let reply = waiters[0].reply(PATIENCE).expect("a grant");
    let fence = grant(&reply).expect("a grant").fence;
    assert_eq!(conn.lock_number("k", "fence"), fence);
    assert_eq!((server.stat("waiters"), server.stat("claims_after_wait")), (999, 1));
    assert!(waiters[1..].iter_mut().step_by(97).all(|raw| raw.reply_within(Duration::ZERO).is_none()));
}

/// What the server takes of a processor during this time, in percent.
fn share(server: &Server, span: Duration) -> f64 {
    let (start, before) = (Instant::now(), server.processor_ms());
    std::thread::sleep(span);
    (server.processor_ms() - before) / (start.elapsed().as_secs_f64() * 10.0)
}

/// Whoever waits for keys with names of megabytes costs the others little while nothing happens: the look at them is not
/// begun again at once. It was the half of a processor for one name of a hundred megabytes, and all of it for many of one.
#[test]
fn names_of_megabytes_cost_little_while_nothing_happens() {
    const MEGABYTE: usize = 1 << 20;
    for (count, len) in [(1, 48 * MEGABYTE), (48, MEGABYTE)] {
        let server = Server::start();
        let mut conn = server.conn();
        let name = |number: usize| "x".repeat(len) + &number.to_string();
        for number in 0..count {
            conn.ok(("PRLOCK.CLAIM", name(number), "PX", 600_000, "TOKEN", "a"));
        }
        let waiters = crowd(&server, count, name);
        let span = Duration::from_secs(2);
        let taken = share(&server, span).min(share(&server, span));
        println!("{count} names of {} MB: {taken:.1} % of a processor", len / MEGABYTE);
        assert!(taken < 15.0, "{taken} % of a processor for {count} names of {len} bytes");
        drop(waiters);
    }
}

/// Ten thousand keys with one waiter each, and nothing happens: nearly nothing is what it costs.
#[test]
fn ten_thousand_queues_cost_nearly_nothing_while_nothing_happens() {
    const KEYS: usize = 10_000;
    let (server, _turn) = spacious();
    let mut conn = server.conn();
    let mut pipeline = redis::pipe();
    for number in 0..KEYS {
        pipeline.cmd("PRLOCK.CLAIM").arg(format!("k{number}")).arg("PX").arg(600_000).arg("TOKEN").arg("a").ignore();
    }
    let () = pipeline.query(&mut conn).expect("locks");
    let waiters = crowd(&server, KEYS, |number| format!("k{number}"));
    let share = |span| share(&server, span);
    let waiting = share(Duration::from_secs(1)).min(share(Duration::from_secs(1)));
    // All of them are granted at once, and each one once.
    conn.ok(("FLUSHALL",));
    wait_until("all to be granted", PATIENCE, || (server.stat("claims_after_wait") == KEYS as i64).then_some(()));
    assert_eq!(conn.int("DBSIZE"), KEYS as i64);
    // The same server with the same connections, and nobody waits.
    let idle = share(Duration::from_secs(1));
    println!("10,000 queues: {waiting:.2} % of a processor while nothing happens; without any: {idle:.2} %");
    assert!(waiting - idle < slowed_share(2.0), "{waiting} % of a processor, {idle} % without");
    drop(waiters);
}

/// Floods of clients that connect, wait and die leave nothing behind.
#[test]
fn floods_of_waiters_leave_nothing_behind() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN a");
    for number in 0..10 {
        conn.granted(&format!("PRLOCK.CLAIM k{number} PX 600000 TOKEN a"));
    }
    // Memory that the server takes once and keeps.
    drop(crowd(&server, 500, |number| format!("k{}", number % 10)));
    server.wait_nobody_waits();
    let before = server.footprint();
    for round in 0..10 {
        let mut raws: Vec<Raw> = (0..500)
            .map(|number| {
                let mut raw = server.raw();
                let key = if number % 2 == 0 { "k".to_owned() } else { format!("k{}", number % 10) };
                let block_ms = number % 7;
                raw.send_command(("PRLOCK.CLAIM", key, "PX", 60_000, "HOLDER", vec![b'h'; 500], "BLOCK", block_ms));
                raw
            })
            .collect();
        // Some die at once, some while they wait, some after their null.
        raws.truncate(400 - round * 10);
        if round % 2 == 0 {
            wait_until("some to wait", PATIENCE, || (server.stat("waits_started") > 0).then_some(()));
        }
        drop(raws);
    }
    server.wait_back_to(&before, 300_000);
    assert_eq!(server.stat("claims_after_wait"), 0);
    for key in ["k", "k1", "k9"] {
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, "a"))), 1);
    }
}

/// At maxclients the server refuses connections; those who wait are served.
#[test]
fn at_maxclients_those_who_wait_are_served() {
    let server = Server::builder().config("maxclients", "60").start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut raws: Vec<Raw> = (0..80).map(|_| server.raw()).collect();
    for (number, raw) in raws.iter_mut().enumerate() {
        raw.send_command(("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", format!("t{number}"), "BLOCK", 0));
    }
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for mut raw in raws {
        match raw.reply_within(Duration::from_millis(20)) {
            None => waiting.push(raw),
            Some(reply) => {
                let error = reply.expect_err("no grant");
                assert!(error.contains("max number of clients") || error == "the connection is closed", "{error}");
                refused += 1;
            }
        }
    }
    assert!(waiting.len() >= 50 && refused >= 20, "{} wait, {refused} refused", waiting.len());
    let mut token = b"a".to_vec();
    for raw in &mut waiting {
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", "k", &token[..]))), 1);
        token = grant(&raw.reply(PATIENCE).expect("a grant")).expect("a grant").token;
    }
}

/// At maxmemory a claim is refused, waiting or not; whoever waits already is granted, since its claim was let in.
#[test]
fn at_maxmemory_those_who_wait_are_served() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut first = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN first BLOCK 0");
    let mut second = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN second BLOCK 0");
    conn.ok(("CONFIG", "SET", "maxmemory", 1));
    assert!(conn.err(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0")).starts_with("OOM "));
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    assert_eq!(first.granted().token, b"first");
    assert_eq!(conn.ok(("DEL", "k")), Value::Int(1));
    assert_eq!(second.granted().token, b"second");
    conn.ok(("CONFIG", "SET", "maxmemory", 0));
    server.wait_nobody_waits();
}
