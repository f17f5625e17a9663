//! Whole commands at random against a live server: every shape of arguments to every command of the module, in between
//! whatever else a server is asked to do, with clients that vanish in the middle. The server must live, its replica must
//! hold the same, LIST must equal the keyspace, and when all is gone so must be the memory.

mod module;
mod others;
mod words;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;

use self::words::{Call, Seen};
use crate::run::Run;
use crate::support::{Conn, Dumper, PATIENCE, Server, bytes, int, items, map, text, wait_for_offset_equal, wait_until};

/// Clients of the primary; one more is the replica's.
const CLIENTS: u64 = 10;
/// How long one round goes before everything is compared.
const ROUND: Duration = Duration::from_secs(3);
/// How long a client waits for its replies before it hangs up.
const PATIENCE_OF_A_CLIENT: Duration = Duration::from_millis(60);
/// How often the replica's client, who never waits, sends something.
const LOOK_EVERY: Duration = Duration::from_millis(3);
const DATABASES: usize = 4;
/// Rounds of the shortest run: fewer would say nothing of the memory.
const ROUNDS_LEAST: u64 = 4;
/// What the server may need more at the end than in the first half of the rounds: its own buffers and tables, which differ by
/// one or two million from round to round. A byte lost with every command is more within minutes.
const MEMORY_SLACK_BYTES: i64 = 2_500_000;

/// After so many rounds all that the module counts must have happened.
const ROUNDS_FOR_EVERYTHING: u64 = 8;
const GAUGES: &[&str] = &["held", "waiters", "linger_bound", "last_fence"];

pub fn fuzz(run: &Run) -> String {
    // Events of every class, so that their paths run too; a small history of slow commands, which keeps arguments.
    let server = Server::builder()
        .config("notify-keyspace-events", "AKEd")
        .config("databases", &DATABASES.to_string())
        .config("slowlog-log-slower-than", "0")
        .config("proto-max-bulk-len", "1mb")
        .config("appendonly", "yes")
        .start();
    let seen = Arc::new(Seen::new(Dumper::new(&mut server.conn())));
    server.conn().ok(("FUNCTION", "LOAD", module::LIBRARY));
    let replica = server.replica();
    let answered = Arc::new(AtomicU64::new(0));
    let (mut rounds, mut memory) = (0, Vec::new());
    while rounds < ROUNDS_LEAST || run.goes_on() {
        rounds += 1;
        round(run, rounds, &server, &replica, &seen, &answered);
        compare(&server, &replica);
        memory.push(memory_when_all_is_gone(&server));
        run.progress(|| format!("{} commands answered, {rounds} comparisons", answered.load(Relaxed)));
    }
    // What the server allocates at the first use of something it has after half of the rounds, and a leak grows on.
    let (first_half, second_half) = memory.split_at(memory.len() / 2);
    let most = first_half.iter().max().copied().unwrap_or_default();
    let last = second_half.last().copied().unwrap_or_default();
    assert!(
        last < most + MEMORY_SLACK_BYTES,
        "without data the server needs {last} bytes; after each round {memory:?}"
    );
    let reached = reached(&server, rounds);
    format!(
        "{} commands answered in {rounds} rounds, among them {reached}; the server lives; LIST equals the keyspace, and the replica the primary, after \
         each; without data it needs at most {most} bytes in the first half of the rounds, and {last} after the last",
        answered.load(Relaxed)
    )
}

fn round(run: &Run, round: u64, server: &Server, replica: &Server, seen: &Arc<Seen>, answered: &Arc<AtomicU64>) {
    seen.has_pauses.store(round.is_multiple_of(2), Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..=CLIENTS)
        .map(|number| {
            let mut rng = run.rng(round * 1_000 + number);
            let (stop, last, answered, seen) = (stop.clone(), last.clone(), answered.clone(), seen.clone());
            let (port, make) =
                if number < CLIENTS { (server.port(), batch as Make) } else { (replica.port(), looks as Make) };
            std::thread::spawn(move || {
                let mut socket = None;
                while !stop.load(Relaxed) {
                    let batch = make(&mut rng, &seen);
                    if exchange(&mut socket, port, &batch, &seen) {
                        answered.fetch_add(batch.len() as u64, Relaxed);
                    } else if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
                        last.lock().expect("no client panics").push(batch);
                        return;
                    }
                    if number == CLIENTS {
                        std::thread::sleep(LOOK_EVERY);
                    }
                    if rng.random_ratio(1, 20) {
                        // Gone without a word, perhaps with a wait begun.
                        socket = None;
                    }
                }
            })
        })
        .collect();
    let start = Instant::now();
    while start.elapsed() < ROUND && server.is_alive() && replica.is_alive() {
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("a client"));
    let last = last.lock().expect("no client panics");
    let shown: Vec<String> = last.iter().flatten().map(|command| show(command)).collect();
    let are_alive = server.is_alive() && replica.is_alive();
    assert!(are_alive, "a server has died; among the last commands were:\n{}", shown.join("\n"));
}

type Make = fn(&mut StdRng, &Seen) -> Vec<Call>;

/// What one client of the primary sends at once.
fn batch(rng: &mut StdRng, seen: &Seen) -> Vec<Call> {
    let count = match rng.random_range(0..400) {
        0 => rng.random_range(300..2_000),
        _ => rng.random_range(1..8),
    };
    let mut batch: Vec<Call> = (0..count).map(|_| command(rng, seen)).collect();
    if rng.random_ratio(1, 8) {
        batch.insert(0, words::words("MULTI"));
        batch.push(words::words(if rng.random_ratio(1, 8) { "DISCARD" } else { "EXEC" }));
    }
    batch
}

/// A command, most often one of the module's.
fn command(rng: &mut StdRng, seen: &Seen) -> Call {
    match rng.random_range(0..100) {
        0..60 => module::any(rng, seen),
        60..68 => module::in_a_script(rng, seen),
        68..88 => others::on_keys(rng, seen),
        _ => others::on_the_server(rng, seen),
    }
}

/// What one client of the replica sends at once.
fn looks(rng: &mut StdRng, seen: &Seen) -> Vec<Call> {
    (0..rng.random_range(1..8)).map(|_| others::on_a_replica(rng, seen)).collect()
}

/// Sends the commands and takes the replies, whatever they are. False if they did not all come.
fn exchange(socket: &mut Option<TcpStream>, port: u16, batch: &[Call], seen: &Seen) -> bool {
    let Some(mut open) = socket.take().or_else(|| connect(port, seen)) else { return false };
    let mut out = Vec::new();
    for command in batch {
        out.extend_from_slice(&redis::Cmd::new().arg(command).get_packed_command());
    }
    // Of all commands the one that is answered even to subscribers.
    out.extend_from_slice(b"PING end-of-batch\r\n");
    if open.write_all(&out).is_err() {
        return false;
    }
    let (mut replies, mut chunk) = (Vec::new(), [0; 16_384]);
    loop {
        match open.read(&mut chunk) {
            Ok(0) => return false,
            Ok(len) => replies.extend_from_slice(&chunk[..len]),
            // It waits, its transaction queues, or it wanted no replies: hang up.
            Err(_) => return false,
        }
        if replies.windows(12).any(|part| part == b"end-of-batch") {
            seen.look(&replies);
            *socket = Some(open);
            return true;
        }
    }
}

fn connect(port: u16, seen: &Seen) -> Option<TcpStream> {
    let mut open = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    open.set_read_timeout(Some(PATIENCE_OF_A_CLIENT)).ok()?;
    open.set_write_timeout(Some(PATIENCE)).ok()?;
    open.write_all(b"CLIENT ID\r\n").ok()?;
    let mut reply = [0; 32];
    // None while all clients are paused.
    if let Ok(len) = open.read(&mut reply) {
        let id = String::from_utf8_lossy(&reply[..len]).trim_matches([':', '\r', '\n']).parse();
        id.into_iter().for_each(|id| seen.client.store(id, Relaxed));
    }
    Some(open)
}

fn show(command: &[Vec<u8>]) -> String {
    let parts: Vec<String> = command.iter().map(|part| part.escape_ascii().to_string()).collect();
    parts.join(" ")
}

/// What the calls came to, by the module's own counters. Whatever it counts has happened, or the generator is too weak.
#[track_caller]
fn reached(server: &Server, rounds: u64) -> String {
    let text = text(&server.conn().ok(("INFO", "prlock")));
    let fields = text.lines().filter_map(|line| line.strip_prefix("prlock_")?.split_once(':'));
    let counters: Vec<_> = fields.filter(|(name, _)| !GAUGES.contains(name)).collect();
    let missed = counters.iter().find(|(_, count)| *count == "0");
    assert!(missed.is_none() || rounds < ROUNDS_FOR_EVERYTHING, "never reached in {rounds} rounds: {missed:?}");
    counters.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// Removes everything that clients have left, and says what the server needs then, but for its clients and replicas.
#[track_caller]
fn memory_when_all_is_gone(server: &Server) -> i64 {
    let mut conn = server.conn();
    conn.ok(("FLUSHALL", "SYNC"));
    for line in ["SLOWLOG RESET", "ACL LOG RESET", "SCRIPT FLUSH SYNC", "ACL DELUSER u1 u2 u3", "LATENCY RESET"] {
        conn.ok(words::words(line));
    }
    drop(conn);
    for gauge in ["prlock_held", "prlock_waiters", "prlock_linger_bound"] {
        wait_until("the module to hold nothing", PATIENCE, || (server.info_number(gauge) == 0).then_some(()));
    }
    wait_until("the clients to be gone", PATIENCE, || (server.info_number("connected_clients") == 1).then_some(()));
    let others = ["mem_clients_normal", "mem_clients_slaves", "mem_total_replication_buffers", "mem_aof_buffer"];
    server.info_number("used_memory") - others.iter().map(|name| server.info_number(name)).sum::<i64>()
}

/// LIST equals the keyspace on both, and the replica holds what the primary holds.
#[track_caller]
fn compare(server: &Server, replica: &Server) {
    let mut conn = server.conn();
    // What a client has paused or limited goes on.
    let _ = conn.call(("CLIENT", "UNPAUSE"));
    conn.ok(("CONFIG", "SET", "maxmemory", "0"));
    conn.ok(("CONFIG", "SET", "hz", "10"));
    wait_until("nobody to wait", PATIENCE, || (server.info_number("prlock_waiters") == 0).then_some(()));
    // Keys that lapse during the comparison would make differences that are none.
    wait_until("LIST to equal the keyspace", PATIENCE, || (listed(server) == in_keyspace(server)).then_some(()));
    let start = Instant::now();
    loop {
        wait_for_offset_equal(server, replica);
        // DEBUG DIGEST sees also what is past its deadline: a primary that DEBUG RELOAD has read its own file anew has
        // dropped that, and no replica was told.
        let is_same = digest(server) == digest(replica) || values(server) == values(replica);
        if is_same && listed(server) == listed(replica) {
            break;
        }
        if start.elapsed() > PATIENCE {
            let (ours, theirs) = (values(server), values(replica));
            let differ: Vec<String> = ours.symmetric_difference(&theirs).cloned().collect();
            panic!("the replica differs from the primary (both values shown):\n{}", differ.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until("the replica's LIST to equal its keyspace", PATIENCE, || {
        (listed(replica) == in_keyspace(replica)).then_some(())
    });
    let log = server.log();
    assert!(!log.contains("defect of the module"), "the module found a defect of its own:\n{log}");
}

/// Every key with its type, deadline and digest, to show a difference.
fn values(server: &Server) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for db in 0..DATABASES {
        let mut conn = server.conn_with(Conn::resp2().set_db(i64::try_from(db).expect("a database")));
        for key in items(&conn.ok(("KEYS", "*"))) {
            let key = bytes(&key);
            let digest = text(&items(&conn.ok(("DEBUG", "DIGEST-VALUE", &key[..])))[0]);
            let kind = text(&conn.ok(("TYPE", &key[..])));
            let deadline = int(&conn.ok(("PEXPIRETIME", &key[..])));
            all.insert(format!("{db}:{} {kind} {deadline} {digest}", key.escape_ascii()));
        }
    }
    all
}

fn digest(server: &Server) -> String {
    text(&server.conn().ok(("DEBUG", "DIGEST")))
}

fn listed(server: &Server) -> BTreeSet<(usize, Vec<u8>, i64)> {
    let mut all = BTreeSet::new();
    for db in 0..DATABASES {
        let mut conn = server.conn_with(Conn::resp2().set_db(i64::try_from(db).expect("a database")));
        for row in items(&conn.ok(("PRLOCK.LIST",))) {
            let row = map(&row);
            all.insert((db, bytes(&row["key"]), int(&row["fence"])));
        }
    }
    all
}

fn in_keyspace(server: &Server) -> BTreeSet<(usize, Vec<u8>, i64)> {
    let mut all = BTreeSet::new();
    for db in 0..DATABASES {
        let mut conn = server.conn_with(Conn::resp2().set_db(i64::try_from(db).expect("a database")));
        for key in items(&conn.ok(("KEYS", "*"))) {
            let key = bytes(&key);
            if let Ok(lock @ (redis::Value::Array(_) | redis::Value::Map(_))) = conn.call(("PRLOCK.INFO", &key[..])) {
                all.insert((db, key, int(&map(&lock)["fence"])));
            }
        }
    }
    all
}
