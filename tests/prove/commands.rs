//! Whole commands at random against a live server: every shape of arguments to every command of the module, in between
//! whatever else a server is asked to do, with clients that vanish in the middle. The server must live, its replica must
//! hold the same, LIST must equal the keyspace, and when all is gone so must be the memory.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::run::Run;
use crate::support::{Conn, PATIENCE, Server, bytes, int, items, map, text, wait_for_offset_equal, wait_until};

const CLIENTS: u64 = 6;
/// How long one round goes before everything is compared.
const ROUND: Duration = Duration::from_secs(3);
/// How long a client waits for its replies before it hangs up.
const PATIENCE_OF_A_CLIENT: Duration = Duration::from_millis(150);
const DATABASES: usize = 4;

pub fn fuzz(run: &Run) -> String {
    // Events of every class, so that their paths run too; a small history of slow commands, which keeps arguments.
    let server = Server::builder()
        .config("notify-keyspace-events", "AKEd")
        .config("databases", &DATABASES.to_string())
        .config("slowlog-log-slower-than", "0")
        .config("proto-max-bulk-len", "1mb")
        .start();
    let replica = server.replica();
    let sent = Arc::new(AtomicU64::new(0));
    let mut rounds = 0;
    while run.goes_on() {
        rounds += 1;
        round(run, rounds, &server, &sent);
        compare(&server, &replica);
        run.progress(|| format!("{} commands, {rounds} comparisons", sent.load(Relaxed)));
    }
    format!(
        "{} commands in {rounds} rounds; the server lives; LIST equals the keyspace, and the replica the primary, after each",
        sent.load(Relaxed)
    )
}

fn round(run: &Run, round: u64, server: &Server, sent: &Arc<AtomicU64>) {
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(Mutex::new(Vec::new()));
    let port = server.port();
    let threads: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut rng = run.rng(round * 1_000 + number);
            let (stop, last, sent) = (stop.clone(), last.clone(), sent.clone());
            std::thread::spawn(move || {
                let mut socket = None;
                while !stop.load(Relaxed) {
                    let batch: Vec<Vec<Vec<u8>>> = (0..rng.random_range(1..8)).map(|_| command(&mut rng)).collect();
                    sent.fetch_add(batch.len() as u64, Relaxed);
                    if !exchange(&mut socket, port, &batch) && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
                    {
                        last.lock().expect("no client panics").push(batch);
                        return;
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
    while start.elapsed() < ROUND && server.is_alive() && run.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("a client"));
    let last = last.lock().expect("no client panics");
    let shown: Vec<String> = last.iter().flatten().map(|command| show(command)).collect();
    assert!(server.is_alive(), "the server has died; among the last commands were:\n{}", shown.join("\n"));
}

/// Sends the commands and takes the replies, whatever they are. False if the connection ended.
fn exchange(socket: &mut Option<TcpStream>, port: u16, batch: &[Vec<Vec<u8>>]) -> bool {
    let mut open = match socket.take().map_or_else(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)), Ok) {
        Ok(open) => open,
        Err(_) => return false,
    };
    let mut out = Vec::new();
    for command in batch {
        out.extend_from_slice(&redis::Cmd::new().arg(command).get_packed_command());
    }
    out.extend_from_slice(b"ECHO end-of-batch\r\n");
    if open.write_all(&out).is_err() {
        return false;
    }
    let _ = open.set_read_timeout(Some(PATIENCE_OF_A_CLIENT));
    let (mut seen, mut chunk) = (Vec::new(), [0; 16_384]);
    loop {
        match open.read(&mut chunk) {
            Ok(0) => return false,
            Ok(len) => seen.extend_from_slice(&chunk[..len]),
            // It waits, or its transaction queues: hang up.
            Err(_) => return true,
        }
        if seen.windows(12).any(|part| part == b"end-of-batch") {
            *socket = Some(open);
            return true;
        }
    }
}

fn show(command: &[Vec<u8>]) -> String {
    let parts: Vec<String> = command.iter().map(|part| part.escape_ascii().to_string()).collect();
    parts.join(" ")
}

/// LIST equals the keyspace on both, and the replica holds what the primary holds.
#[track_caller]
fn compare(server: &Server, replica: &Server) {
    let mut conn = server.conn();
    // What a client has paused or limited goes on.
    let _ = conn.call(("CLIENT", "UNPAUSE"));
    conn.ok(("CONFIG", "SET", "maxmemory", "0"));
    wait_until("nobody to wait", PATIENCE, || (server.info_number("prlock_waiters") == 0).then_some(()));
    // Keys that lapse during the comparison would make differences that are none.
    wait_until("LIST to equal the keyspace", PATIENCE, || (listed(server) == in_keyspace(server)).then_some(()));
    let start = Instant::now();
    loop {
        wait_for_offset_equal(server, replica);
        if listed(server) == listed(replica) && digest(server) == digest(replica) {
            break;
        }
        if start.elapsed() > PATIENCE {
            let (ours, theirs) = (values(server), values(replica));
            let differ: Vec<String> = ours.symmetric_difference(&theirs).cloned().collect();
            panic!("the replica differs from the primary (both values shown):\n{}", differ.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(listed(replica), in_keyspace(replica), "the replica's LIST and its keyspace");
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
            let lock = conn.call(("PRLOCK.INFO", &key[..]));
            all.insert(format!("{db}:{} {kind} {deadline} {digest} {lock:?}", key.escape_ascii()));
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

/// A command, most often one of the module's.
fn command(rng: &mut StdRng) -> Vec<Vec<u8>> {
    match rng.random_range(0..100) {
        0..35 => plausible(rng),
        35..60 => wild(rng),
        60..70 => in_a_script(rng),
        _ => other(rng),
    }
}

const COMMANDS: &[&str] =
    &["PRLOCK.CLAIM", "PRLOCK.RENEW", "PRLOCK.RELEASE", "PRLOCK.INFO", "PRLOCK.LIST", "PRLOCK.REVOKE", "PRLOCK.APPLY"];
const WORDS: &[&str] = &[
    "EX", "PX", "TOKEN", "HOLDER", "BLOCK", "STEAL", "STEALIF", "LINGER", "FENCE", "MATCH", "AFTER", "COUNT", "ex",
    "pX", "NX",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "5",
    "40",
    "1000",
    "60000",
    "86400000",
    "86400001",
    "-1",
    "-0",
    "+5",
    " 5",
    "5 ",
    "05",
    "1.5",
    "1e3",
    "0x10",
    "",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9223372036854775",
    "99999999999999",
    "nan",
    "\0",
];
const TOKENS: &[&str] = &["a", "b", "c", "token-d", "%s%n", "e\0f"];

fn pick<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from[rng.random_range(0..from.len())]
}

fn key(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..20) {
        0 => Vec::new(),
        1 => b"list".to_vec(),
        2 => b"string".to_vec(),
        3 => b"k\0\xff\r\n%s%n".to_vec(),
        4 => vec![b'k'; rng.random_range(1..3_000)],
        number => format!("k{}", number % 5).into_bytes(),
    }
}

fn blob(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..8) {
        0 => (0..rng.random_range(0..40)).map(|_| rng.random()).collect(),
        1 => vec![b'x'; rng.random_range(510..515)],
        2 => b"*a*[^a-z]?\\*[".to_vec(),
        3 => vec![b'*'; rng.random_range(0..200)],
        4 => key(rng),
        _ => pick(rng, TOKENS).as_bytes().to_vec(),
    }
}

fn number(rng: &mut StdRng) -> Vec<u8> {
    if rng.random_ratio(2, 3) {
        return rng.random_range(1..3_000).to_string().into_bytes();
    }
    pick(rng, NUMBERS).as_bytes().to_vec()
}

/// A call that has good chances.
fn plausible(rng: &mut StdRng) -> Vec<Vec<u8>> {
    let key = key(rng);
    let token = pick(rng, TOKENS).as_bytes().to_vec();
    let ttl = [b"PX".to_vec(), rng.random_range(1..2_000).to_string().into_bytes()];
    let mut call: Vec<Vec<u8>> = Vec::new();
    match rng.random_range(0..10) {
        0..5 => {
            call.extend([b"PRLOCK.CLAIM".to_vec(), key]);
            call.extend(ttl);
            if rng.random_ratio(2, 3) {
                call.extend([b"TOKEN".to_vec(), token]);
            }
            if rng.random_ratio(1, 2) {
                call.extend([b"HOLDER".to_vec(), blob(rng)]);
            }
            if rng.random_ratio(1, 4) {
                call.extend([b"LINGER".to_vec(), rng.random_range(0..100).to_string().into_bytes()]);
            }
            match rng.random_range(0..4) {
                0 => call.extend([b"BLOCK".to_vec(), rng.random_range(0..60).to_string().into_bytes()]),
                1 => call.push(b"STEAL".to_vec()),
                _ => {}
            }
        }
        5 | 6 => call.extend([b"PRLOCK.RELEASE".to_vec(), key, token]),
        7 => {
            call.extend([b"PRLOCK.RENEW".to_vec(), key, token]);
            call.extend(ttl);
        }
        8 => call.extend([b"PRLOCK.REVOKE".to_vec(), blob(rng)]),
        _ => call.extend([b"PRLOCK.LIST".to_vec(), b"MATCH".to_vec(), blob(rng)]),
    }
    call
}

/// Any arguments to any command.
fn wild(rng: &mut StdRng) -> Vec<Vec<u8>> {
    let mut call = vec![pick(rng, COMMANDS).as_bytes().to_vec()];
    if rng.random_ratio(4, 5) {
        call.push(key(rng));
    }
    for _ in 0..rng.random_range(0..10) {
        call.push(match rng.random_range(0..3) {
            0 => pick(rng, WORDS).as_bytes().to_vec(),
            1 => number(rng),
            _ => blob(rng),
        });
    }
    call
}

fn in_a_script(rng: &mut StdRng) -> Vec<Vec<u8>> {
    let inner = if rng.random() { plausible(rng) } else { wild(rng) };
    let script: &[u8] = if rng.random() {
        b"return redis.pcall(unpack(ARGV))"
    } else {
        b"redis.call('SET', 'string', 'a') local r = redis.pcall(unpack(ARGV)) redis.call('DEL', 'k1') return r"
    };
    let mut call = vec![b"EVAL".to_vec(), script.to_vec(), b"0".to_vec()];
    call.extend(inner);
    call
}

/// What else a server is asked to do.
fn other(rng: &mut StdRng) -> Vec<Vec<u8>> {
    let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let (a, b) = (key(rng), key(rng));
    let db = rng.random_range(0..DATABASES).to_string().into_bytes();
    let small = rng.random_range(0..300).to_string().into_bytes();
    let with = |name: &str, rest: &[&[u8]]| {
        let mut call = words(name);
        call.extend(rest.iter().map(|part| part.to_vec()));
        call
    };
    match rng.random_range(0..58) {
        0 | 1 => with("DEL", &[&a]),
        2 => with("UNLINK", &[&a, &b]),
        3 => with("SET", &[&a, pick(rng, TOKENS).as_bytes()]),
        4 => with("SET string", &[pick(rng, TOKENS).as_bytes(), b"PX", b"500"]),
        5 => with("RENAME", &[&a, &b]),
        6 => with("RENAMENX", &[&a, &b]),
        7 => with("MOVE", &[&a, &db]),
        8 => with("COPY", &[&a, &b, b"DB", &db, b"REPLACE"]),
        9 => with("PEXPIRE", &[&a, &small]),
        10 => with("PERSIST", &[&a]),
        11 => with("EXPIRE", &[&a, b"-1"]),
        12 | 13 => with("SELECT", &[&db]),
        14 => with("SWAPDB 0", &[&db]),
        15 => words("FLUSHDB"),
        16 => words("FLUSHDB ASYNC"),
        17 => words(if rng.random() { "FLUSHALL" } else { "FLUSHALL ASYNC" }),
        18..21 => words("MULTI"),
        21..25 => words("EXEC"),
        25 => words("DISCARD"),
        26 => with("WATCH", &[&a]),
        27 => with("CLIENT KILL TYPE normal SKIPME", &[if rng.random() { b"yes" } else { b"no" }]),
        28 => with("CLIENT UNBLOCK", &[rng.random_range(0..200).to_string().as_bytes(), b"ERROR"]),
        29 => with("CLIENT UNBLOCK", &[rng.random_range(0..200).to_string().as_bytes()]),
        30 => with("CLIENT PAUSE", &[rng.random_range(1..60).to_string().as_bytes(), b"WRITE"]),
        31 => words("CLIENT UNPAUSE"),
        32 => with("CLIENT SETNAME", &[pick(rng, TOKENS).as_bytes()]),
        33 => words("CLIENT TRACKING ON"),
        34 => words("HELLO 3"),
        35 => words("HELLO 2"),
        36 => words("RESET"),
        37 => words("SUBSCRIBE channel"),
        38 => words("UNSUBSCRIBE"),
        39 => with("LPUSH list", &[&a]),
        40 => with("DUMP", &[&a]),
        41 => restore(rng, a),
        42 => with("OBJECT ENCODING", &[&a]),
        43 => with("MEMORY USAGE", &[&a]),
        44 => with("DEBUG OBJECT", &[&a]),
        45 => with("TOUCH", &[&a]),
        46 => words("SLOWLOG GET 100"),
        47 => words("INFO everything"),
        48 => words("DEBUG SET-ACTIVE-EXPIRE 0"),
        49 => words("DEBUG SET-ACTIVE-EXPIRE 1"),
        50 => with("CONFIG SET maxmemory", &[if rng.random_ratio(1, 8) { b"1" } else { b"0" }]),
        51 => with("CONFIG SET prlock.max-ttl-ms", &[if rng.random_ratio(1, 8) { b"5" } else { b"0" }]),
        52 => words("SCAN 0 TYPE prlock-rs"),
        53 => words("COMMAND DOCS prlock.claim"),
        54 => with("COMMAND GETKEYS PRLOCK.CLAIM", &[&a, b"PX", b"5"]),
        55 => words("RANDOMKEY"),
        56 => with("SORT", &[&a]),
        _ if rng.random_ratio(1, 20) => words("DEBUG RELOAD"),
        _ => with("TYPE", &[&a]),
    }
}

/// A payload that looks like a lock's, nearly.
fn restore(rng: &mut StdRng, key: Vec<u8>) -> Vec<Vec<u8>> {
    let mut payload: Vec<u8> = (0..rng.random_range(0..80)).map(|_| rng.random()).collect();
    if let Some(first) = payload.first_mut() {
        // The RDB's byte for a value of a module.
        *first = 7;
    }
    vec![b"RESTORE".to_vec(), key, b"0".to_vec(), payload, b"REPLACE".to_vec()]
}
