//! PRLOCK.CLAIM: the table of what lies under the key and how it is claimed, row by row.

use crate::support::{Conn, Server, Value, bytes, cmd, int, map};

/// What lies under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// A lock past its deadline that nobody has removed yet.
    Lapsed,
    /// A string past its deadline.
    LapsedString,
    /// A lock of the token that claims.
    Own,
    Others,
    PlainString,
    /// The string that an older worker stores: this very token.
    TokenString,
    List,
    Hash,
    Set,
    SortedSet,
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    NewFence,
    SameFence,
    Refused,
    WrongType,
}

use Outcome::{NewFence, Refused, SameFence, WrongType};

/// Each state with the outcomes of a plain claim, STEAL, STEALIF with the lock's fence, STEALIF with another.
const TABLE: [(State, [Outcome; 4]); 12] = [
    (State::Absent, [NewFence; 4]),
    (State::Lapsed, [NewFence; 4]),
    (State::LapsedString, [NewFence; 4]),
    (State::Own, [SameFence; 4]),
    (State::Others, [Refused, NewFence, NewFence, Refused]),
    (State::PlainString, [Refused, NewFence, Refused, Refused]),
    (State::TokenString, [Refused, NewFence, Refused, Refused]),
    (State::List, [WrongType; 4]),
    (State::Hash, [WrongType; 4]),
    (State::Set, [WrongType; 4]),
    (State::SortedSet, [WrongType; 4]),
    (State::Stream, [WrongType; 4]),
];

/// Makes the state, and returns the fence of the lock if there is one.
fn prepare(conn: &mut Conn, state: State) -> i64 {
    conn.ok(("DEL", "k"));
    let line = match state {
        State::Absent => return 1,
        State::Lapsed => {
            let fence = conn.granted("PRLOCK.CLAIM k PX 1 TOKEN other HOLDER B").fence;
            let at_ms = conn.time_ms();
            conn.wait_past(at_ms + 1);
            return fence;
        }
        State::LapsedString => {
            conn.ok(cmd("SET k other PX 1"));
            let at_ms = conn.time_ms();
            conn.wait_past(at_ms + 1);
            return 1;
        }
        State::Own => return conn.granted("PRLOCK.CLAIM k PX 5000 TOKEN mine HOLDER old LINGER 7").fence,
        State::Others => return conn.granted("PRLOCK.CLAIM k PX 5000 TOKEN other HOLDER B LINGER 7").fence,
        State::PlainString => "SET k other PX 5000",
        State::TokenString => "SET k mine PX 5000",
        State::List => "RPUSH k 1",
        State::Hash => "HSET k f 1",
        State::Set => "SADD k 1",
        State::SortedSet => "ZADD k 1 m",
        State::Stream => "XADD k 1-1 f v",
    };
    conn.ok(cmd(line));
    0
}

/// SPEC, CLAIM's table. Also CASES 2, 26 (a free lock with STEALIF is a plain grant) and 55 for CLAIM.
#[test]
fn every_state_and_mode_of_the_table() {
    let server = Server::start();
    server.conn().ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        for (state, outcomes) in TABLE {
            for (mode, outcome) in ["", "STEAL", "STEALIF", "STEALIF other"].into_iter().zip(outcomes) {
                let fence = prepare(&mut conn, state);
                check(&mut conn, state, mode, outcome, fence);
            }
        }
    }
}

fn check(conn: &mut Conn, state: State, mode: &str, outcome: Outcome, fence: i64) {
    let what = format!("{state:?} {mode} {outcome:?}");
    let option = match mode {
        "STEALIF" => format!("STEALIF {fence}"),
        "STEALIF other" => format!("STEALIF {}", fence + 1),
        other => other.to_owned(),
    };
    let line = format!("PRLOCK.CLAIM k PX 60000 TOKEN mine HOLDER A {option}");
    let before = conn.state_of(b"k");
    match outcome {
        Refused => {
            conn.refused(&line);
            assert_eq!(conn.state_of(b"k"), before, "{what}");
        }
        WrongType => {
            let error = conn.err(cmd(&line));
            assert_eq!(error, "WRONGTYPE Operation against a key holding the wrong kind of value", "{what}");
            assert_eq!(conn.state_of(b"k"), before, "{what}");
        }
        NewFence | SameFence => {
            let grant = conn.granted(&line);
            assert_eq!(grant.token, b"mine", "{what}");
            if outcome == SameFence {
                assert_eq!(grant.fence, fence, "{what}");
            } else {
                assert!(grant.fence > fence, "{what}");
            }
            assert_eq!(bytes(&conn.ok(("TYPE", "k"))), b"prlock-rs", "{what}");
            let ttl_ms = conn.int("PTTL k");
            assert!((1..=60_000).contains(&ttl_ms) && ttl_ms > 30_000, "{what}: {ttl_ms}");
            let info = map(&conn.ok(("PRLOCK.INFO", "k")));
            // Holder and linger are those of this call, never what the earlier one asked for.
            assert_eq!(bytes(&info["holder"]), b"A", "{what}");
            assert_eq!(int(&info["linger-ms"]), -1, "{what}");
            assert_eq!(int(&info["fence"]), grant.fence, "{what}");
            assert_eq!(conn.listed(), ["k"], "{what}");
            // The earlier holder has lost it for good.
            assert_eq!(conn.int("PRLOCK.RENEW k other PX 60000"), 0, "{what}");
            assert_eq!(conn.int("PRLOCK.RELEASE k other"), 0, "{what}");
            assert_eq!(conn.int("PRLOCK.RENEW k mine PX 60000"), 1, "{what}");
        }
    }
}

/// SPEC: without TOKEN the server makes one, 32 lowercase hex digits, never twice.
#[test]
fn made_tokens_are_hex_and_unique() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut tokens = std::collections::BTreeSet::new();
    for number in 0..500 {
        let token = conn.granted(&format!("PRLOCK.CLAIM k{number} PX 60000")).token;
        assert_eq!(token.len(), 32);
        assert!(token.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{token:?}");
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", format!("k{number}"), &token, "PX", 60_000))), 1);
        assert!(tokens.insert(token));
    }
    // Every position takes many values: no part of it is a clock or a counter.
    for position in 0..32 {
        let digits: std::collections::BTreeSet<u8> = tokens.iter().map(|token| token[position]).collect();
        assert!(digits.len() > 8, "position {position} has only {digits:?}");
    }
}

/// SPEC: a claim without TOKEN never meets its own lock: it is refused by a lock with a made token too.
#[test]
fn a_made_token_is_never_that_of_the_lock() {
    let server = Server::start();
    let mut conn = server.conn();
    let first = conn.granted("PRLOCK.CLAIM k PX 60000");
    conn.refused("PRLOCK.CLAIM k PX 60000");
    let again = conn.ok(("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", &first.token));
    assert_eq!(crate::support::grant(&again), Some(first));
}

/// SPEC: without HOLDER the label is the connection's name, or empty; an empty HOLDER is a label too.
#[test]
fn the_default_holder_is_the_connection_name() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM nameless PX 60000");
    assert_eq!(conn.lock_holder("nameless"), "");
    conn.ok(cmd("CLIENT SETNAME worker-7"));
    conn.granted("PRLOCK.CLAIM named PX 60000");
    assert_eq!(conn.lock_holder("named"), "worker-7");
    conn.granted("PRLOCK.CLAIM given PX 60000 HOLDER other");
    assert_eq!(conn.lock_holder("given"), "other");
    conn.granted("PRLOCK.CLAIM empty PX 60000 HOLDER ''");
    assert_eq!(conn.lock_holder("empty"), "");
    // In a transaction it is the same connection.
    conn.ok(("MULTI",));
    conn.ok(cmd("PRLOCK.CLAIM multi PX 60000"));
    conn.ok(("EXEC",));
    assert_eq!(conn.lock_holder("multi"), "worker-7");
    // A new claim by the same token labels it anew.
    conn.granted("PRLOCK.CLAIM given PX 60000 TOKEN t HOLDER x STEAL");
    conn.granted("PRLOCK.CLAIM given PX 60000 TOKEN t");
    assert_eq!(conn.lock_holder("given"), "worker-7");
    // A name that is longer than a label can be is no reason to fail.
    conn.ok(("CLIENT", "SETNAME", "n".repeat(513)));
    conn.granted("PRLOCK.CLAIM long PX 60000");
}

/// SPEC: options in any order, in any case.
#[test]
fn options_in_any_order_and_case() {
    let server = Server::start();
    let mut conn = server.conn();
    let options = ["px 60000", "Token t", "hOLDER h", "LINGER 9", "steal"];
    // All rotations of both directions: each option at each place.
    for start in 0..options.len() {
        for backwards in [false, true] {
            let mut order: Vec<&str> = options.iter().cycle().skip(start).take(options.len()).copied().collect();
            if backwards {
                order.reverse();
            }
            let key = format!("k{start}{backwards}");
            let grant = conn.granted(&format!("prlock.Claim {key} {}", order.join(" ")));
            assert_eq!(grant.token, b"t");
            assert_eq!(conn.lock_holder(&key), "h");
            assert_eq!(conn.lock_number(&key, "linger-ms"), 9);
        }
    }
    // The words of options are values where a value stands.
    let grant = conn.granted("PRLOCK.CLAIM EX EX 60 TOKEN HOLDER HOLDER TOKEN");
    assert_eq!(grant.token, b"HOLDER");
    assert_eq!(conn.lock_holder("EX"), "TOKEN");
    assert_eq!(conn.int("prlock.renew EX HOLDER Ex 60"), 1);
    assert_eq!(conn.int("PRLOCK.RENEW EX HOLDER fence 1 ex 60"), 0);
    assert_eq!(conn.int(&format!("PRLOCK.RENEW EX HOLDER fence {} ex 60", grant.fence)), 1);
    assert_eq!(conn.int(&format!("PRLOCK.RELEASE EX HOLDER FeNcE {}", grant.fence)), 1);
}

/// CASES 1: a claim sent five times after timeouts, then released once.
#[test]
fn a_claim_sent_five_times_is_one_grant() {
    let server = Server::start();
    let mut conn = server.conn();
    let first = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    for _ in 0..4 {
        assert_eq!(conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t"), first);
    }
    assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1);
    assert_eq!(conn.int("EXISTS k"), 0);
    assert_eq!(conn.int("PRLOCK.RELEASE k t"), 0);
}

/// CASES 2: the reply is lost and the claim is sent again on a new connection.
#[test]
fn a_retry_on_a_new_connection_is_granted() {
    let server = Server::start();
    let mut lost = server.raw();
    lost.send_command(cmd("PRLOCK.CLAIM k PX 60000 TOKEN t"));
    let mut conn = server.conn();
    crate::support::wait_until("the first claim", crate::support::PATIENCE, || {
        (conn.int("EXISTS k") == 1).then_some(())
    });
    lost.close();
    let fence = conn.lock_number("k", "fence");
    assert_eq!(server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN t").fence, fence);
}

/// CASES 9: the connection is nobody: only the token counts.
#[test]
fn ownership_is_the_token_and_not_the_connection() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN one");
    conn.refused("PRLOCK.CLAIM k PX 60000 TOKEN two");
    let mut other = server.conn();
    assert_eq!(other.int("PRLOCK.RENEW k one PX 60000"), 1);
    assert_eq!(other.int("PRLOCK.RELEASE k one"), 1);
}

/// CASES 15: after a claim there is a deadline. CASES 17: PX 1 and PX 999 are exact.
#[test]
fn every_deadline_is_exact() {
    let server = Server::start();
    let mut conn = server.conn();
    for (option, ttl_ms) in
        [("PX 999", 999), ("PX 1", 1), ("PX 86400000", 86_400_000), ("EX 1", 1_000), ("EX 86400", 86_400_000)]
    {
        for line in ["PRLOCK.CLAIM k TOKEN t", "PRLOCK.CLAIM k TOKEN t STEAL", "PRLOCK.RENEW k t"] {
            conn.ok(cmd("PRLOCK.CLAIM k PX 60000 TOKEN t"));
            let before = conn.time_ms();
            conn.ok(cmd(&format!("{line} {option}")));
            let after = conn.time_ms();
            // The replica's stream has it even where the key is gone by now.
            let at_ms = conn.int("PEXPIRETIME k");
            if at_ms == -2 {
                assert!(conn.time_ms() > before + ttl_ms, "{line} {option}: gone too early");
            } else {
                // The clock of a command is read when it begins, perhaps a moment before it is run.
                assert!((before + ttl_ms - 1..=after + ttl_ms).contains(&at_ms), "{line} {option}: {at_ms} {before}");
            }
        }
    }
}

/// CASES 26: two stealers with the same STEALIF; exactly one wins.
#[test]
fn of_two_stealers_one_wins() {
    let server = Server::start();
    let mut conn = server.conn();
    let fence = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN dead").fence;
    let won = conn.granted(&format!("PRLOCK.CLAIM k PX 60000 TOKEN a STEALIF {fence}"));
    conn.refused(&format!("PRLOCK.CLAIM k PX 60000 TOKEN b STEALIF {fence}"));
    assert_eq!(conn.lock_number("k", "fence"), won.fence);
    // The loser's sight is old; the winner's own retry is not a theft.
    assert_eq!(conn.granted(&format!("PRLOCK.CLAIM k PX 60000 TOKEN a STEALIF {fence}")), won);
    conn.ok(("DEL", "k"));
    conn.granted(&format!("PRLOCK.CLAIM k PX 60000 TOKEN b STEALIF {fence}"));
    // What no grant can have equals none.
    for fence in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
        conn.refused(&format!("PRLOCK.CLAIM k PX 60000 TOKEN c STEALIF {fence}"));
    }
}

/// CASES 27: the old pass's clean-up inside one process must not touch the stealer's lock.
#[test]
fn a_stolen_locks_release_leaves_the_registry_alone() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN old HOLDER h");
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN new HOLDER h STEAL");
    assert_eq!(conn.int("PRLOCK.RELEASE k old"), 0);
    assert_eq!(conn.listed(), ["k"]);
    assert_eq!(conn.int("PRLOCK.REVOKE h"), 1);
    assert_eq!(conn.listed(), [""; 0]);
}

/// SPEC, The fence: greater at every grant, whatever became of the earlier ones, over all keys and databases.
#[test]
fn fences_rise_over_all_keys_and_databases() {
    let server = Server::start();
    let mut conns = [server.conn(), server.conn_with(Conn::resp3().set_db(3))];
    let mut last = 0;
    for round in 0..100 {
        let conn = &mut conns[round % 2];
        let grant = conn.granted(&format!("PRLOCK.CLAIM k{} PX 60000 TOKEN t{round} STEAL", round % 7));
        assert!(grant.fence > last && grant.fence < 1 << 53);
        last = grant.fence;
        match round % 5 {
            0 => drop(conn.ok(("FLUSHALL",))),
            1 => drop(conn.ok(("DEL", "k1"))),
            _ => {}
        }
    }
    assert_eq!(server.info_number("prlock_last_fence"), last);
    let now_us = conns[0].time_ms() * 1_000;
    assert!(last <= now_us + 1_000, "not ahead of the clock");
    assert_eq!(conns[0].ok(("EXISTS", "nothing")), Value::Int(0));
}

/// In MULTI and in scripts a claim that would wait answers at once, as BLPOP does there.
#[test]
fn block_is_ignored_where_nobody_can_wait() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    conn.ok(("MULTI",));
    conn.ok(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0"));
    assert_eq!(conn.ok(("EXEC",)), Value::Array(vec![Value::Nil]));
    let script = "return redis.call('PRLOCK.CLAIM', KEYS[1], 'PX', 1000, 'BLOCK', 0) == false";
    assert_eq!(int(&conn.ok(("EVAL", script, 1, "k"))), 1);
    // And on a free key it is a plain grant anywhere.
    conn.granted("PRLOCK.CLAIM free PX 60000 BLOCK 0");
}
