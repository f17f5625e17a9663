//! The table of limits and errors: every malformed argument of every command, and that an error leaves no trace.

use crate::support::{Conn, Server, cmd};

const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const CLAIM_TTL: &str = "ERR invalid expire time in 'prlock.claim' command";
const RENEW_TTL: &str = "ERR invalid expire time in 'prlock.renew' command";

/// CASES 13: what is no plain base-10 integer of 64 bits.
const NO_INTEGERS: [&str; 20] = [
    "123.45",
    "1e3",
    "_5",
    "5_",
    "0x10",
    "+5",
    "5abc",
    "''",
    "05",
    "-0",
    "-",
    "--5",
    "1,000",
    "nan",
    "inf",
    "5\0",
    "\u{665}",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999999999999",
];

/// Malformed calls and their errors. `k` is the key and `t` its token, where it has one.
fn table() -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |line: &str, error: &str| rows.push((line.to_owned(), error.to_owned()));
    let long = "x".repeat(513);

    for line in [
        // Neither or both of EX and PX, or one of them twice.
        "PRLOCK.CLAIM k TOKEN t",
        "PRLOCK.CLAIM k TOKEN t HOLDER h",
        "PRLOCK.CLAIM k EX 1 PX 1",
        "PRLOCK.CLAIM k PX 1 PX 1",
        "PRLOCK.CLAIM k EX 1 EX 1",
        // Repeated.
        "PRLOCK.CLAIM k PX 1000 TOKEN t TOKEN t",
        "PRLOCK.CLAIM k PX 1000 HOLDER t holder t",
        "PRLOCK.CLAIM k PX 1000 BLOCK 1 BLOCK 1",
        "PRLOCK.CLAIM k PX 1000 STEAL STEAL",
        "PRLOCK.CLAIM k PX 1000 STEALIF 1 STEALIF 1",
        "PRLOCK.CLAIM k PX 1000 LINGER 1 LINGER 1",
        // Excluding each other.
        "PRLOCK.CLAIM k PX 1000 BLOCK 1 STEAL",
        "PRLOCK.CLAIM k PX 1000 STEAL BLOCK 1",
        "PRLOCK.CLAIM k PX 1000 BLOCK 1 STEALIF 1",
        "PRLOCK.CLAIM k PX 1000 STEAL STEALIF 1",
        // Unknown.
        "PRLOCK.CLAIM k PX 1000 NX",
        "PRLOCK.CLAIM k PX 1000 FENCE 1",
        "PRLOCK.CLAIM k PX 1000 KEEPTTL",
        "PRLOCK.CLAIM k PX 1000 ''",
        "PRLOCK.CLAIM k PX 1000 TOKENS t",
        "PRLOCK.CLAIM k PX 1000 t",
        "PRLOCK.CLAIM k EXAT 1999999999",
        "PRLOCK.CLAIM k 1000 PX",
        // Without their value.
        "PRLOCK.CLAIM k STEAL PX",
        "PRLOCK.CLAIM k STEAL EX",
        "PRLOCK.CLAIM k PX 1000 TOKEN",
        "PRLOCK.CLAIM k PX 1000 HOLDER",
        "PRLOCK.CLAIM k PX 1000 BLOCK",
        "PRLOCK.CLAIM k PX 1000 STEALIF",
        "PRLOCK.CLAIM k PX 1000 LINGER",
        "PRLOCK.RENEW k t PX 1000 EX",
        "PRLOCK.RENEW k t PX 1000 EX 1",
        "PRLOCK.RENEW k t PX 1000 PX 1000",
        "PRLOCK.RENEW k t EX 1 EX 1",
        "PRLOCK.RENEW k t FENCE 1",
        "PRLOCK.RENEW k t PX 1000 FENCE",
        "PRLOCK.RENEW k t PX 1000 FENCE 1 FENCE 1",
        "PRLOCK.RENEW k t PX 1000 HOLDER h",
        "PRLOCK.RENEW k t PX 1000 LINGER 1",
        "PRLOCK.RENEW k t 1000 PX",
        "PRLOCK.RENEW k t PX 1000 ''",
        "PRLOCK.RELEASE k t FENCE",
        "PRLOCK.RELEASE k t FENCE 1 FENCE 1",
        "PRLOCK.RELEASE k t PX 1",
        "PRLOCK.RELEASE k t t",
        "PRLOCK.RELEASE k t ''",
        "PRLOCK.LIST MATCH",
        "PRLOCK.LIST HOLDER",
        "PRLOCK.LIST AFTER",
        "PRLOCK.LIST COUNT",
        "PRLOCK.LIST MATCH * MATCH *",
        "PRLOCK.LIST HOLDER h HOLDER h",
        "PRLOCK.LIST AFTER a AFTER a",
        "PRLOCK.LIST COUNT 1 COUNT 1",
        "PRLOCK.LIST *",
        "PRLOCK.LIST ''",
        "PRLOCK.LIST TYPE string",
        // As in SCAN.
        "PRLOCK.LIST COUNT 0",
        "PRLOCK.LIST COUNT -1",
    ] {
        row(line, SYNTAX);
    }

    for number in NO_INTEGERS {
        for line in [
            "PRLOCK.CLAIM k PX ?",
            "PRLOCK.CLAIM k EX ? TOKEN t",
            "PRLOCK.CLAIM k PX 1000 BLOCK ?",
            "PRLOCK.CLAIM k PX 1000 STEALIF ?",
            "PRLOCK.CLAIM k PX 1000 LINGER ? TOKEN t STEAL",
            "PRLOCK.RENEW k t PX ?",
            "PRLOCK.RENEW k t EX ?",
            "PRLOCK.RENEW k t PX 1000 FENCE ?",
            "PRLOCK.RELEASE k t FENCE ?",
            "PRLOCK.LIST COUNT ?",
        ] {
            row(&line.replace('?', number), NO_INTEGER);
        }
    }

    // CASES 11 and 12: nothing, negative, and beyond what the server can store.
    for ttl in [
        "PX 0",
        "PX -1",
        "EX 0",
        "EX -1",
        "PX 9223372036854775807",
        "PX -9223372036854775808",
        "EX 9223372036854775",
        "EX 9223372036854775807",
        "EX -9223372036854775808",
    ] {
        row(&format!("PRLOCK.CLAIM k {ttl}"), CLAIM_TTL);
        row(&format!("PRLOCK.CLAIM k TOKEN t STEAL {ttl}"), CLAIM_TTL);
        row(&format!("PRLOCK.CLAIM k {ttl} BLOCK 1"), CLAIM_TTL);
        row(&format!("PRLOCK.RENEW k t {ttl}"), RENEW_TTL);
    }
    // CASES 14: ms where seconds were meant. The error names the cap and its setting.
    for ttl in ["PX 86400001", "EX 86401", "EX 600000", "PX 9000000000000000"] {
        let cap = ": above 86400000 ms, the cap that prlock.max-ttl-ms sets";
        row(&format!("PRLOCK.CLAIM k {ttl}"), &format!("{CLAIM_TTL}{cap}"));
        row(&format!("PRLOCK.CLAIM k TOKEN t {ttl} STEAL"), &format!("{CLAIM_TTL}{cap}"));
        row(&format!("PRLOCK.RENEW k t {ttl}"), &format!("{RENEW_TTL}{cap}"));
    }

    for negative in ["-1", "-9223372036854775808"] {
        row(&format!("PRLOCK.CLAIM k PX 1000 BLOCK {negative}"), "ERR timeout is negative");
        row(
            &format!("PRLOCK.CLAIM k PX 1000 TOKEN t LINGER {negative}"),
            "ERR value is out of range, must be positive",
        );
    }

    // CASES 8: an empty token, and one that is too long.
    for token in ["''", &long] {
        let error = "ERR token must be 1 to 512 bytes";
        row(&format!("PRLOCK.CLAIM k PX 1000 TOKEN {token}"), error);
        row(&format!("PRLOCK.CLAIM k PX 1000 TOKEN {token} STEAL"), error);
        row(&format!("PRLOCK.RENEW k {token} PX 1000"), error);
        row(&format!("PRLOCK.RELEASE k {token}"), error);
    }
    let error = "ERR holder must be at most 512 bytes";
    row(&format!("PRLOCK.CLAIM k PX 1000 HOLDER {long}"), error);
    row(&format!("PRLOCK.CLAIM k PX 1000 TOKEN t HOLDER {long} STEAL"), error);
    row(&format!("PRLOCK.LIST HOLDER {long}"), error);
    row(&format!("PRLOCK.REVOKE {long}"), error);
    row("PRLOCK.REVOKE ''", "ERR holder must not be empty");

    for line in [
        "PRLOCK.CLAIM",
        "PRLOCK.CLAIM k",
        "PRLOCK.CLAIM k PX",
        "PRLOCK.RENEW",
        "PRLOCK.RENEW k",
        "PRLOCK.RENEW k t",
        "PRLOCK.RENEW k t PX",
        "PRLOCK.RELEASE",
        "PRLOCK.RELEASE k",
        "PRLOCK.INFO",
        "PRLOCK.INFO k k",
        "PRLOCK.REVOKE",
        "PRLOCK.REVOKE h h",
        "PRLOCK.APPLY",
        "PRLOCK.APPLY k",
        "PRLOCK.APPLY k s s",
    ] {
        let name = line.split(' ').next().unwrap_or_default();
        row(line, &format!("ERR wrong number of arguments for '{name}' command"));
    }
    row("PRLOCK.APPLY k s", "ERR PRLOCK.APPLY is for replication and the AOF; use PRLOCK.CLAIM");
    rows
}

/// SPEC: a call that returns an error changed nothing, replicated nothing and emitted nothing. CASES 11 to 15.
#[test]
fn an_error_leaves_no_trace() {
    let server = Server::start();
    let mut witness = server.witness();
    for (db, prepare) in [
        (0, ""),
        (3, "PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h"),
        (0, "PRLOCK.CLAIM k PX 60000 TOKEN other HOLDER h"),
        (0, "SET k t PX 60000"),
    ] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        conn.ok(("DEL", "k"));
        if !prepare.is_empty() {
            conn.ok(cmd(prepare));
        }
        witness.seen();
        let before = conn.state_of(b"k");
        for (line, error) in table() {
            let words = cmd(&line);
            assert_eq!(conn.err(&words[..]), error, "{line:.100} on {prepare:?}");
            assert_eq!(conn.state_of(b"k"), before, "{line:.100} on {prepare:?}");
            witness.assert_nothing(&line);
        }
        assert_eq!(conn.int("EXISTS k"), i64::from(!prepare.is_empty()));
    }
    assert_eq!(server.conn().int("DBSIZE"), 1);
}

/// CASES 55: each keyed command on each other type is WRONGTYPE, and the value stays as it is.
#[test]
fn other_types_are_wrongtype_and_stay() {
    let server = Server::start();
    let mut witness = server.witness();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        for make in ["LPUSH k 1", "HSET k f 1", "SADD k 1", "ZADD k 1 m", "XADD k 1-1 f v"] {
            conn.ok(("DEL", "k"));
            conn.ok(cmd(make));
            witness.seen();
            let before = conn.state_of(b"k");
            for line in [
                "PRLOCK.CLAIM k PX 1000",
                "PRLOCK.CLAIM k PX 1000 STEAL",
                "PRLOCK.CLAIM k PX 1000 STEALIF 1",
                "PRLOCK.CLAIM k PX 1000 BLOCK 1",
                "PRLOCK.RENEW k 1 PX 1000",
                "PRLOCK.RENEW k 1 PX 1000 FENCE 1",
                "PRLOCK.RELEASE k 1",
                "PRLOCK.RELEASE k 1 FENCE 1",
                "PRLOCK.INFO k",
            ] {
                assert_eq!(conn.err(cmd(line)), WRONG_TYPE, "{line} after {make}");
                assert_eq!(conn.state_of(b"k"), before, "{line} after {make}");
                witness.assert_nothing(line);
            }
            assert_eq!(conn.listed(), [""; 0]);
        }
    }
}

/// The server's own commands for other types are WRONGTYPE on a lock, and leave it as it is. CASES 10 and 28.
#[test]
fn commands_of_other_types_are_wrongtype_on_a_lock() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let before = conn.state_of(b"k");
    for line in [
        "GET k",
        "GETDEL k",
        "APPEND k x",
        "INCR k",
        "STRLEN k",
        "GETRANGE k 0 1",
        "SETRANGE k 0 x",
        "LPUSH k 1",
        "LPOP k",
        "HSET k f v",
        "HGETALL k",
        "SADD k 1",
        "ZADD k 1 m",
        "XADD k * f v",
        "PFADD k 1",
        "SETBIT k 1 1",
        "GETEX k PERSIST",
    ] {
        assert!(conn.err(cmd(line)).starts_with("WRONGTYPE"), "{line}");
    }
    assert_eq!(conn.ok(cmd("SET k x NX PX 1000")), redis::Value::Nil);
    // The Lua of an older worker.
    let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
    let error = conn.err(("EVAL", script, 1, "k", "t"));
    assert!(error.contains("WRONGTYPE"), "{error}");
    assert!(conn.call(cmd("COPY k c")).is_err());
    assert_eq!(conn.int("EXISTS c"), 0);
    assert_eq!(conn.state_of(b"k"), before);
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
}

/// A refusal leaves as little trace as an error. CASES 41.
#[test]
fn a_refusal_leaves_no_trace() {
    let server = Server::start();
    let mut witness = server.witness();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        let fence = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h").fence;
        conn.ok(cmd("SET s t PX 60000"));
        witness.seen();
        let before = (conn.state_of(b"k"), conn.state_of(b"s"));
        let other = fence + 1;
        for line in [
            "PRLOCK.CLAIM k PX 1000",
            "PRLOCK.CLAIM k PX 1000 TOKEN other",
            &format!("PRLOCK.CLAIM k PX 1000 STEALIF {other}"),
            "PRLOCK.CLAIM s PX 1000 TOKEN t",
            "PRLOCK.CLAIM s PX 1000 STEALIF 1",
            "PRLOCK.INFO free",
            "PRLOCK.INFO s",
        ] {
            assert_eq!(conn.ok(cmd(line)), redis::Value::Nil, "{line}");
            witness.assert_nothing(line);
        }
        for line in [
            "PRLOCK.RENEW k other PX 1000",
            "PRLOCK.RENEW k T PX 1000",
            "PRLOCK.RENEW free t PX 1000",
            &format!("PRLOCK.RENEW k t PX 1000 FENCE {other}"),
            "PRLOCK.RENEW k t PX 1000 FENCE 0",
            "PRLOCK.RENEW k t PX 1000 FENCE -1",
            "PRLOCK.RENEW s other PX 1000",
            "PRLOCK.RENEW s t PX 1000 FENCE 0",
            "PRLOCK.RELEASE k other",
            "PRLOCK.RELEASE free t",
            &format!("PRLOCK.RELEASE k t FENCE {other}"),
            "PRLOCK.RELEASE s other",
            "PRLOCK.RELEASE s t FENCE 0",
            "PRLOCK.REVOKE other",
            "PRLOCK.REVOKE H",
        ] {
            assert_eq!(conn.int(line), 0, "{line}");
            witness.assert_nothing(line);
        }
        conn.ok(("PRLOCK.INFO", "k"));
        conn.ok(cmd("PRLOCK.LIST MATCH * COUNT 5"));
        witness.assert_nothing("reads");
        assert_eq!((conn.state_of(b"k"), conn.state_of(b"s")), before);
    }
}
