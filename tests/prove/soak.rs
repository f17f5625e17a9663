//! Hours of use squeezed into the time there is: millions of locks, claimed and released, lapsed, waited for, stolen,
//! lingering and flushed. In the end the server is as it was in the beginning: memory, file descriptors, latency.

use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use redis::Value;

use crate::run::Run;
use crate::support::{PATIENCE, Raw, Server, info_number_on, int, wait_until};

/// Kinds of things that are done.
const KINDS: u32 = 10;
/// Commands sent at once.
const PIPELINE: usize = 500;
/// Used memory in the end, beside that of the same server before.
const GROWTH_PERCENT: i64 = 1;
/// Resident memory in the end may be so many times that of before: the allocator keeps some of what a flood needed.
const RESIDENT_FACTOR: i64 = 2;
/// The median latency in the end may be so many times that of the beginning; the machine is shared.
const LATENCY_FACTOR: u32 = 5;

pub fn soak(run: &Run) -> String {
    let server = Server::start();
    let mut rng = run.rng(0);
    // Some times through everything, so that what is allocated at first use is there: the server keeps helpers for as many
    // clients as ever waited at once.
    let mut counts = Counts::default();
    let mut raw = server.raw();
    (0..3).flat_map(|_| 0..KINDS).for_each(|kind| step(&server, &mut raw, &mut rng, &mut counts, kind));
    raw.close();
    let before = Footprint::of(&server);
    let latency_before = median_latency(&server);

    let mut counts = Counts::default();
    let mut peak_bytes = 0;
    while run.goes_on() || counts.lapsed == 0 {
        churn(&server, &mut rng, &mut counts, Duration::from_secs(2).min(Duration::from_secs(1 + run.elapsed_s())));
        peak_bytes = peak_bytes.max(server.info_number("used_memory_peak"));
        run.progress(|| format!("{counts:?}, used_memory {}", server.info_number("used_memory")));
    }

    let bound_bytes = before.used_bytes + before.used_bytes * GROWTH_PERCENT / 100;
    let after = wait_until("memory to be what it was", PATIENCE, || {
        let after = Footprint::of(&server);
        if after.used_bytes > bound_bytes || after.descriptors > before.descriptors {
            eprintln!("   not yet: {after:?}, and it was {before:?}");
            std::thread::sleep(Duration::from_secs(1));
            return None;
        }
        Some(after)
    });
    assert!(after.resident_bytes < before.resident_bytes * RESIDENT_FACTOR, "resident: {before:?}, then {after:?}");
    let latency_after = median_latency(&server);
    assert!(
        latency_after < latency_before * LATENCY_FACTOR,
        "the median latency was {latency_before:?} in the beginning and is {latency_after:?} in the end"
    );
    format!(
        "{counts:?}; before {before:?}, after {after:?}, peak {peak_bytes} bytes; median latency {latency_before:?}, then {latency_after:?}"
    )
}

/// What was done.
#[derive(Debug, Default)]
struct Counts {
    released: u64,
    lapsed: u64,
    flushed: u64,
    waited: u64,
    lingered: u64,
    refused: u64,
}

/// What a server needs.
#[derive(Debug)]
struct Footprint {
    used_bytes: i64,
    resident_bytes: i64,
    descriptors: usize,
}

impl Footprint {
    /// Measured when every lock and every client but one is gone.
    #[track_caller]
    fn of(server: &Server) -> Self {
        let mut conn = server.conn();
        wait_until("every lock and every other client to be gone", PATIENCE, || {
            let mut ask = |field| info_number_on(&mut conn, field);
            let held = ask("prlock_held") + ask("prlock_waiters");
            let others = ask("connected_clients") - 1;
            (held == 0 && others == 0 && int(&conn.ok(("DBSIZE",))) == 0).then_some(())
        });
        conn.ok(("MEMORY", "PURGE"));
        // Tables shrink step by step, from the server's cron.
        let mut used_bytes = info_number_on(&mut conn, "used_memory");
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(50));
            used_bytes = used_bytes.min(info_number_on(&mut conn, "used_memory"));
        }
        let folder = format!("/proc/{}/fd", server.pid());
        Self {
            used_bytes,
            resident_bytes: info_number_on(&mut conn, "used_memory_rss"),
            descriptors: std::fs::read_dir(folder).expect("look at the server's file descriptors").count(),
        }
    }
}

fn churn(server: &Server, rng: &mut StdRng, counts: &mut Counts, time: Duration) {
    let start = Instant::now();
    let mut raw = server.raw();
    while start.elapsed() < time {
        let kind = rng.random_range(0..KINDS);
        step(server, &mut raw, rng, counts, kind);
    }
    raw.close();
}

/// One thing of the kind of this number, below [`KINDS`].
fn step(server: &Server, raw: &mut Raw, rng: &mut StdRng, counts: &mut Counts, kind: u32) {
    match kind {
        0..5 => {
            // Claimed and released.
            let number: u64 = rng.random_range(0..1_000_000);
            let pairs: Vec<Vec<String>> = (0..PIPELINE as u64 / 2)
                .flat_map(|step| {
                    let key = format!("soak-{}", number + step);
                    [
                        claim(&key, 60_000, &["TOKEN", "t", "HOLDER", "worker"]),
                        vec!["PRLOCK.RELEASE".to_owned(), key, "t".to_owned()],
                    ]
                })
                .collect();
            send(raw, &pairs);
            counts.released += PIPELINE as u64 / 2;
        }
        5 | 6 => {
            // Left to lapse.
            let number: u64 = rng.random();
            let ttl_ms = rng.random_range(1..300);
            let claims: Vec<_> = (0..PIPELINE as u64)
                .map(|step| claim(&format!("lapse-{}", number.wrapping_add(step)), ttl_ms, &["HOLDER", "worker"]))
                .collect();
            send(raw, &claims);
            counts.lapsed += PIPELINE as u64;
        }
        7 => {
            // Held by somebody else.
            let claims: Vec<_> = (0..PIPELINE).map(|_| claim("contended", 100, &[])).collect();
            send(raw, &claims);
            counts.refused += PIPELINE as u64;
        }
        8 => {
            // Freed from outside with commands behind it, so that the grant comes in a call within the server's own.
            send(raw, &[claim("awaited", 60_000, &["STEAL"])]);
            let mut heir = server.waiter(claim("awaited", 5, &["BLOCK", "0"]));
            send(raw, &["DEL awaited", "PING"].map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>()));
            heir.reply(PATIENCE).expect("a grant");
            heir.disconnect();
            // Waited for, by clients that then close; and what they hold lingers.
            send(raw, &[claim("awaited", 5, &["STEAL"])]);
            let mut waiters: Vec<_> = (0..20)
                .map(|_| {
                    let linger = rng.random_range(0..20).to_string();
                    server.background(claim("awaited", 60_000, &["BLOCK", "50", "LINGER", &linger]))
                })
                .collect();
            waiters[0].reply(PATIENCE).expect("a grant or the end of the wait");
            waiters.into_iter().for_each(crate::support::Waiter::disconnect);
            counts.waited += 20;
            counts.lingered += 1;
        }
        _ => {
            send(raw, &[vec!["FLUSHALL".to_owned(), if rng.random() { "ASYNC" } else { "SYNC" }.to_owned()]]);
            counts.flushed += 1;
        }
    }
}

fn claim(key: &str, ttl_ms: u64, options: &[&str]) -> Vec<String> {
    let mut words = vec!["PRLOCK.CLAIM".to_owned(), key.to_owned(), "PX".to_owned(), ttl_ms.to_string()];
    words.extend(options.iter().map(|word| (*word).to_owned()));
    words
}

/// Sends commands at once, none of which may fail.
#[track_caller]
fn send(raw: &mut Raw, commands: &[Vec<String>]) {
    let bytes: Vec<u8> = commands.iter().flat_map(|words| redis::Cmd::new().arg(words).get_packed_command()).collect();
    raw.send(&bytes);
    for command in commands {
        raw.reply(PATIENCE).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
}

fn median_latency(server: &Server) -> Duration {
    let mut conn = server.conn();
    let mut times: Vec<Duration> = (0..1_000)
        .map(|_| {
            let start = Instant::now();
            assert_ne!(conn.ok(("PRLOCK.CLAIM", "latency", "PX", 60_000, "TOKEN", "t")), Value::Nil);
            assert_eq!(conn.ok(("PRLOCK.RELEASE", "latency", "t")), Value::Int(1));
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}
