//! Random arguments of every shape to every command. CASES 56.

use rand::RngExt;

use crate::support::{PATIENCE, SeededRng, Server, Value, seeded_rng, wait_until};

/// Calls in a run: enough for every pair of shapes many times over.
const CALLS: usize = 30_000;
const PIPELINE: usize = 100;

const COMMANDS: [&str; 9] = [
    "PRLOCK.CLAIM",
    "PRLOCK.CLAIM",
    "PRLOCK.RENEW",
    "PRLOCK.RELEASE",
    "PRLOCK.INFO",
    "PRLOCK.LIST",
    "PRLOCK.REVOKE",
    "PRLOCK.APPLY",
    "prlock.claim",
];
const OPTIONS: [&str; 15] = [
    "EX", "PX", "TOKEN", "HOLDER", "STEAL", "STEALIF", "LINGER", "FENCE", "MATCH", "AFTER", "COUNT", "px", "Token",
    "NX", "",
];

fn pick<'a>(rng: &mut SeededRng, from: &[&'a str]) -> &'a str {
    from[rng.random_range(0..from.len())]
}

/// Keys are few, so that calls meet each other's locks, strings and lists.
fn key(rng: &mut SeededRng) -> Vec<u8> {
    match rng.random_range(0..20) {
        0 => Vec::new(),
        1 => b"\0\xff%s%n".to_vec(),
        2 => vec![b'k'; 70_000],
        3 => b"string".to_vec(),
        4 => b"list".to_vec(),
        number => vec![b'a' + number],
    }
}

fn argument(rng: &mut SeededRng) -> Vec<u8> {
    match rng.random_range(0..14) {
        0..=4 => pick(rng, &OPTIONS).into(),
        5 => rng.random_range(-10i64..100_000).to_string().into_bytes(),
        6 => rng.random::<i64>().to_string().into_bytes(),
        7 => pick(rng, &["9223372036854775807", "-9223372036854775808", "1e3", "0x10", " 5", "9007199254740993", "-0"])
            .into(),
        8 => (0..rng.random_range(0..40)).map(|_| rng.random()).collect(),
        9 => vec![rng.random(); rng.random_range(500..600)],
        10 => pick(rng, &["*", "[", "[a-", "\\", "a*b*c*d*e*", "%s%n", "t", "h"]).into(),
        11 => key(rng),
        _ => pick(rng, &["t", "u", "h", "1000"]).into(),
    }
}

/// A call as nobody would write it, or one that is almost right.
fn call(rng: &mut SeededRng) -> Vec<Vec<u8>> {
    let command = pick(rng, &COMMANDS);
    let mut words: Vec<Vec<u8>> = vec![command.into()];
    if rng.random_bool(0.95) {
        words.push(key(rng));
    }
    if rng.random_bool(0.6) && command.eq_ignore_ascii_case("PRLOCK.CLAIM") {
        words.extend([b"PX".to_vec(), rng.random_range(1..3_000).to_string().into_bytes()]);
        for option in ["TOKEN", "HOLDER"] {
            if rng.random_bool(0.7) {
                words.extend([option.into(), pick(rng, &["t", "u", "h"]).into()]);
            }
        }
    }
    // Each such wait holds the whole run up.
    if rng.random_bool(0.01) {
        words.extend([b"BLOCK".to_vec(), b"1".to_vec()]);
    }
    for _ in 0..rng.random_range(0..5) {
        words.push(argument(rng));
    }
    words
}

/// What an answer can be: one of SPEC.md's, or an error with one of its codes.
fn check(call: &[Vec<u8>], reply: &Value) {
    match reply {
        Value::ServerError(error) => {
            let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
            let known = [
                "ERR syntax error",
                "ERR value is not an integer or out of range",
                "ERR value is out of range, must be positive",
                "ERR invalid expire time in 'prlock.",
                "ERR timeout is negative",
                "ERR token must be 1 to 512 bytes",
                "ERR holder must be at most 512 bytes",
                "ERR holder must not be empty",
                "ERR wrong number of arguments for '",
                "ERR PRLOCK.APPLY is for replication",
                "WRONGTYPE Operation against a key",
            ];
            assert!(known.iter().any(|start| text.starts_with(start)), "{call:?}: {text}");
        }
        Value::Nil | Value::Int(_) | Value::Array(_) | Value::Okay => {}
        other => panic!("{call:?}: {other:?}"),
    }
}

/// Makes so many calls, on a connection of their own.
fn run(server: &Server, rng: &mut SeededRng, calls: usize) {
    let mut conn = server.conn();
    for _ in 0..calls / PIPELINE {
        conn.ok(("SET", "string", "t"));
        conn.ok(("DEL", "list"));
        conn.ok(("LPUSH", "list", "x"));
        let batch: Vec<Vec<Vec<u8>>> = (0..PIPELINE).map(|_| call(rng)).collect();
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        for words in &batch {
            pipe.add_command(redis::Cmd::new().arg(words).to_owned());
        }
        let replies: Vec<Value> = pipe.query(&mut conn).expect("replies");
        for (words, reply) in batch.iter().zip(&replies) {
            check(words, reply);
        }
    }
}

/// The server's memory without data and without connections but the one that asks.
fn used_bytes(server: &Server) -> i64 {
    server.conn().ok(("FLUSHALL", "SYNC"));
    server.conn().ok(("SLOWLOG", "RESET"));
    wait_until("the connections to be gone", PATIENCE, || (server.info_number("connected_clients") == 1).then_some(()));
    server.info_number("used_memory")
}

/// No abort, and memory flat: after ten times as many calls the server needs no more than after the first.
#[test]
fn random_arguments_do_no_harm() {
    let server = Server::start();
    let mut rng = seeded_rng();
    run(&server, &mut rng, CALLS / 10);
    let before = used_bytes(&server);
    run(&server, &mut rng, CALLS);
    let after = used_bytes(&server);
    // Less than ten bytes for a call: nothing that a call leaves behind is so small.
    assert!(after < before + 250_000, "{before} bytes before, {after} after");
    assert_eq!(server.conn().ok(("PRLOCK.LIST",)), Value::Array(Vec::new()));
    assert_eq!(server.info_number("prlock_held"), 0);
    assert_eq!(server.info_number("prlock_waiters"), 0);
    assert_eq!(server.info_number("prlock_linger_bound"), 0);
}
