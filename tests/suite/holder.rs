//! What a holder does with its lock: RENEW, RELEASE and INFO.

use crate::support::{Conn, PATIENCE, Server, Value, bytes, cmd, int, items, map, text, wait_until};

/// CASES 3: A expires, B claims, and A's late clean-up changes nothing. CASES 20: one more call names B.
#[test]
fn a_late_holder_changes_nothing() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        conn.granted("PRLOCK.CLAIM k PX 1 TOKEN A HOLDER a");
        let at_ms = conn.time_ms();
        conn.wait_past(at_ms + 1);
        let fence = conn.granted("PRLOCK.CLAIM k PX 50000 TOKEN B HOLDER b").fence;
        let before = conn.state_of(b"k");
        assert_eq!(conn.int("PRLOCK.RELEASE k A"), 0);
        assert_eq!(conn.int("PRLOCK.RENEW k A PX 60000"), 0);
        assert_eq!(conn.state_of(b"k"), before, "not a ms of the deadline");
        let info = map(&conn.ok(("PRLOCK.INFO", "k")));
        assert_eq!((bytes(&info["holder"]), int(&info["fence"])), (b"b".to_vec(), fence));
        assert!((1..=50_000).contains(&int(&info["ttl-ms"])));
    }
}

/// CASES 4 and 21: on a lock that has expired or was released both are a reply, and nothing is made anew.
#[test]
fn after_the_end_both_are_zero() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM lapsed PX 1 TOKEN t");
    let at_ms = conn.time_ms();
    conn.wait_past(at_ms + 1);
    conn.granted("PRLOCK.CLAIM released PX 60000 TOKEN t");
    assert_eq!(conn.int("PRLOCK.RELEASE released t"), 1);
    for key in ["lapsed", "released", "never"] {
        for _ in 0..2 {
            // CASES 5: a release that is sent again.
            assert_eq!(conn.int(&format!("PRLOCK.RELEASE {key} t")), 0);
            assert_eq!(conn.int(&format!("PRLOCK.RENEW {key} t PX 1000")), 0);
        }
    }
    assert_eq!(conn.int("DBSIZE"), 0);
}

/// CASES 6: a renewal neither adds to the rest nor keeps a longer one.
#[test]
fn a_renewal_sets_the_deadline_and_adds_nothing() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
    for _ in 0..20 {
        assert_eq!(conn.int("PRLOCK.RENEW k t PX 600000"), 1);
        let rest_ms = conn.int("PTTL k");
        assert!((500_000..=600_000).contains(&rest_ms), "{rest_ms}");
    }
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 5000"), 1);
    assert!((1..=5_000).contains(&conn.int("PTTL k")));
    // A claim by the same token does the same.
    conn.granted("PRLOCK.CLAIM k PX 4000 TOKEN t");
    assert!((1..=4_000).contains(&conn.int("PTTL k")));
}

/// CASES 12: PEXPIRE with 0 would delete the key and say 1; RENEW is an error, and the lock stays.
#[test]
fn a_renewal_by_nothing_keeps_the_lock() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let before = conn.state_of(b"k");
    for ttl in ["PX 0", "PX -1", "EX 0", "EX -5"] {
        assert_eq!(
            conn.err(cmd(&format!("PRLOCK.RENEW k t {ttl}"))),
            "ERR invalid expire time in 'prlock.renew' command"
        );
    }
    assert_eq!(conn.state_of(b"k"), before);
}

/// SPEC: with FENCE a late repeat of an old release or renewal cannot touch a newer grant of the same token.
#[test]
fn the_fence_tells_grants_of_one_token_apart() {
    let server = Server::start();
    let mut conn = server.conn();
    let old = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t").fence;
    assert_eq!(conn.int(&format!("PRLOCK.RELEASE k t FENCE {old}")), 1);
    let new = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t").fence;
    assert!(new > old);
    let before = conn.state_of(b"k");
    assert_eq!(conn.int(&format!("PRLOCK.RELEASE k t FENCE {old}")), 0);
    assert_eq!(conn.int(&format!("PRLOCK.RENEW k t PX 1000 FENCE {old}")), 0);
    assert_eq!(conn.int(&format!("PRLOCK.RENEW k t FENCE {old} PX 1000")), 0);
    assert_eq!(conn.state_of(b"k"), before);
    // Integers that no grant has are just that.
    for none in [-new, 0, -1, i64::MIN, i64::MAX] {
        assert_eq!(conn.int(&format!("PRLOCK.RELEASE k t FENCE {none}")), 0);
        assert_eq!(conn.int(&format!("PRLOCK.RENEW k t PX 1000 FENCE {none}")), 0);
        conn.refused(&format!("PRLOCK.CLAIM k PX 1000 TOKEN u STEALIF {none}"));
    }
    assert_eq!(conn.int(&format!("PRLOCK.RENEW k other PX 1000 FENCE {new}")), 0);
    assert_eq!(conn.int(&format!("PRLOCK.RENEW k t PX 1000 FENCE {new}")), 1);
    assert_eq!(conn.int(&format!("PRLOCK.RELEASE k t FENCE {new}")), 1);
}

/// SPEC and CASES 10: on a plain string RENEW and RELEASE do what the usual Lua scripts do.
#[test]
fn plain_strings_are_renewed_and_released() {
    let server = Server::start();
    let mut witness = server.witness();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        // 12345 is kept as a number, and 40 bytes and more apart from their key.
        for token in ["t", "12345", "-1", "a-token-that-is-longer-than-forty-four-bytes-so-that-it-is-kept-apart"] {
            conn.ok(("SET", "k", token, "PX", 600_000));
            conn.refused("PRLOCK.CLAIM k PX 1000");
            assert_eq!(conn.ok(("PRLOCK.INFO", "k")), Value::Nil);
            assert_eq!(conn.listed(), [""; 0]);
            assert_eq!(conn.int("PRLOCK.RENEW k other PX 1000"), 0);
            witness.seen();
            assert_eq!(conn.int(&format!("PRLOCK.RENEW k {token} PX 5000")), 1);
            assert_eq!(witness.seen(), (vec!["PEXPIREAT k".to_owned()], vec!["expire k".to_owned()]));
            assert!((1..=5_000).contains(&conn.int("PTTL k")));
            assert_eq!(text(&conn.ok(("GET", "k"))), token);
            assert_eq!(conn.int(&format!("PRLOCK.RENEW k {token} PX 5000 FENCE 1")), 0);
            assert_eq!(conn.int(&format!("PRLOCK.RELEASE k {token} FENCE 1")), 0);
            assert_eq!(conn.int("PRLOCK.RELEASE k other"), 0);
            witness.assert_nothing("refusals");
            assert_eq!(conn.int(&format!("PRLOCK.RELEASE k {token}")), 1);
            assert_eq!(witness.seen(), (vec!["DEL k".to_owned()], vec!["del k".to_owned()]));
            assert_eq!(conn.int("EXISTS k"), 0);
        }
        // A token's first bytes are not the token.
        conn.ok(cmd("SET k token"));
        for token in ["toke", "token1", "TOKEN"] {
            assert_eq!(conn.int(&format!("PRLOCK.RELEASE k {token}")), 0);
        }
        // An eternal string gets a deadline, as PEXPIRE gives it one.
        assert_eq!(conn.int("PRLOCK.RENEW k token EX 60"), 1);
        assert!(conn.int("PTTL k") > 0);
        conn.ok(("DEL", "k"));
        witness.seen();
    }
}

/// SPEC, PRLOCK.INFO: each field and what it means.
#[test]
fn info_says_what_is() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp3().set_db(db));
        let names = ["fence", "held-ms", "holder", "idle-ms", "key", "linger-ms", "renewals", "ttl-ms", "waiters"];
        let fence = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER worker-7 LINGER 2000").fence;
        let claimed = conn.time_ms();
        let info = map(&conn.ok(("PRLOCK.INFO", "k")));
        assert_eq!(info.keys().map(String::as_str).collect::<Vec<_>>(), names);
        assert_eq!(text(&info["key"]), "k");
        assert_eq!(text(&info["holder"]), "worker-7");
        assert_eq!(int(&info["fence"]), fence);
        assert_eq!((int(&info["renewals"]), int(&info["linger-ms"]), int(&info["waiters"])), (0, 2_000, 0));
        assert_eq!(int(&info["held-ms"]), int(&info["idle-ms"]));

        conn.wait_past(claimed + 20);
        assert_eq!(conn.int("PRLOCK.RENEW k t PX 50000"), 1);
        let info = map(&conn.ok(("PRLOCK.INFO", "k")));
        assert!(int(&info["held-ms"]) >= 20);
        assert!(int(&info["idle-ms"]) <= int(&info["held-ms"]) - 20);
        assert!((1..=50_000).contains(&int(&info["ttl-ms"])));
        assert_eq!((int(&info["renewals"]), int(&info["fence"])), (1, fence));
        for renewals in 2..5 {
            assert_eq!(conn.int("PRLOCK.RENEW k t PX 50000"), 1);
            assert_eq!(conn.lock_number("k", "renewals"), renewals);
        }
        // A refused renewal counts for nothing.
        assert_eq!(conn.int("PRLOCK.RENEW k other PX 50000"), 0);
        assert_eq!(conn.lock_number("k", "renewals"), 4);
        // Claimed again it is the same grant, as old as before, and not idle.
        let renewed = conn.time_ms();
        conn.wait_past(renewed + 20);
        assert_eq!(conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER worker-7").fence, fence);
        let info = map(&conn.ok(("PRLOCK.INFO", "k")));
        assert!(int(&info["held-ms"]) >= 40);
        assert!(int(&info["idle-ms"]) <= int(&info["held-ms"]) - 40);
        assert_eq!(int(&info["renewals"]), 4);
        // LIST shows the same map.
        let listed = items(&conn.ok(("PRLOCK.LIST",)));
        assert_eq!(map(&listed[0]).keys().map(String::as_str).collect::<Vec<_>>(), names);

        conn.ok(("PERSIST", "k"));
        assert_eq!(conn.lock_number("k", "ttl-ms"), -1);
        assert_eq!(conn.int("PRLOCK.RENEW k t PX 50000"), 1);
        assert!(conn.lock_number("k", "ttl-ms") > 0);

        let waiter = {
            let mut raw = server.raw();
            raw.call(("SELECT", db)).expect("SELECT");
            server.waiter_on(raw, cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0"))
        };
        assert_eq!(conn.lock_number("k", "waiters"), 1);
        waiter.disconnect();
        wait_until("the waiter to be gone", PATIENCE, || (conn.lock_number("k", "waiters") == 0).then_some(()));
        assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1);
        assert_eq!(conn.ok(("PRLOCK.INFO", "k")), Value::Nil);
    }
}

/// Reads leave no trace in what decides about eviction; a renewal does.
#[test]
fn a_look_at_a_lock_is_no_use_of_it() {
    // Every use counts, and none is forgotten.
    let builder = Server::builder().config("maxmemory-policy", "allkeys-lfu").config("lfu-log-factor", "0");
    let server = builder.config("lfu-decay-time", "0").start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
    let uses = conn.int("OBJECT FREQ k");
    for _ in 0..20 {
        conn.ok(cmd("PRLOCK.INFO k"));
        conn.ok(cmd("PRLOCK.LIST"));
        conn.ok(cmd("PRLOCK.LIST MATCH k HOLDER h"));
    }
    assert_eq!(conn.int("OBJECT FREQ k"), uses);
    for _ in 0..20 {
        assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
    }
    assert_eq!(conn.int("OBJECT FREQ k"), uses + 20);
}

/// SPEC, What operators see: the counters, in one run of everything.
#[test]
fn the_counters_of_info_prlock_tell_what_happened() {
    let server = Server::start();
    let mut conn = server.conn();
    let count = |name: &str| server.info_number(&format!("prlock_{name}"));
    conn.granted("PRLOCK.CLAIM a PX 60000 TOKEN t HOLDER h");
    conn.granted("PRLOCK.CLAIM a PX 60000 TOKEN t HOLDER h LINGER 5");
    conn.refused("PRLOCK.CLAIM a PX 60000");
    conn.granted("PRLOCK.CLAIM a PX 60000 TOKEN u HOLDER h STEAL");
    conn.granted("PRLOCK.CLAIM b PX 60000 TOKEN t HOLDER h STEAL");
    assert_eq!(conn.int("PRLOCK.RENEW a u PX 60000"), 1);
    assert_eq!(conn.int("PRLOCK.RENEW a t PX 60000"), 0);
    assert_eq!(conn.int("PRLOCK.RELEASE b t"), 1);
    assert_eq!(conn.int("PRLOCK.RELEASE b t"), 0);
    conn.granted("PRLOCK.CLAIM c PX 60000 HOLDER h LINGER 5");
    assert_eq!((count("held"), count("linger_bound"), count("waiters")), (2, 1, 0));
    assert_eq!(conn.int("PRLOCK.REVOKE h"), 2);
    conn.granted("PRLOCK.CLAIM d PX 60000");
    conn.ok(("DEL", "d"));
    conn.granted("PRLOCK.CLAIM e PX 1");
    wait_until("the expiry", PATIENCE, || (count("expired") == 1).then_some(()));
    let seen: Vec<i64> = [
        "held",
        "claims_granted",
        "claims_repeated",
        "claims_refused",
        "claims_after_wait",
        "waits_started",
        "renewals",
        "renewals_refused",
        "releases",
        "releases_refused",
        "steals",
        "revoked",
        "deleted",
        "evicted",
    ]
    .map(count)
    .to_vec();
    assert_eq!(seen, [0, 6, 1, 1, 0, 0, 1, 1, 1, 1, 1, 2, 1, 0]);
}

/// CASES 30: the connection that holds a lock without LINGER is killed: nothing changes, and the token still renews.
#[test]
fn without_linger_a_killed_connection_changes_nothing() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut holder = server.raw();
    let id = holder.id();
    holder.call(cmd("PRLOCK.CLAIM k PX 60000 TOKEN t")).expect("a grant");
    let before = conn.state_of(b"k");
    conn.ok(("CLIENT", "KILL", "ID", id));
    holder.wait_closed(PATIENCE);
    assert_eq!(conn.state_of(b"k"), before);
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
}

/// CASES 23: ten thousand renewals at a third of the deadline, with random delays, and never lost. The delays come from
/// other work on the server, so that the test waits for nothing.
#[test]
fn ten_thousand_renewals_never_lose_the_lock() {
    use rand::RngExt;
    let server = Server::start();
    let mut conn = server.conn();
    let mut rng = crate::support::seeded_rng();
    let fence = conn.granted("PRLOCK.CLAIM k PX 30000 TOKEN t").fence;
    for _ in 0..100 {
        let mut pipe = redis::pipe();
        for _ in 0..100 {
            for _ in 0..rng.random_range(0..5) {
                pipe.cmd("PING").ignore();
            }
            pipe.cmd("PRLOCK.RENEW").arg("k").arg("t").arg("PX").arg(30_000);
            if rng.random_bool(0.1) {
                pipe.cmd("PRLOCK.CLAIM").arg("k").arg("PX").arg(1_000).ignore();
            }
        }
        let replies: Vec<i64> = pipe.query(&mut conn).expect("renewals");
        assert_eq!(replies, [1; 100]);
    }
    assert_eq!(conn.lock_number("k", "renewals"), 10_000);
    assert_eq!(conn.lock_number("k", "fence"), fence);
}

/// SPEC, What operators see: the section and its fields, each a whole number; and not in a plain INFO.
#[test]
fn info_prlock_has_its_fields() {
    let server = Server::start();
    let mut conn = server.conn();
    let section = text(&conn.ok(("INFO", "prlock")));
    for field in [
        "held",
        "waiters",
        "linger_bound",
        "last_fence",
        "claims_granted",
        "claims_refused",
        "claims_repeated",
        "claims_after_wait",
        "waits_started",
        "waits_timed_out",
        "waits_abandoned",
        "renewals",
        "renewals_refused",
        "releases",
        "releases_refused",
        "steals",
        "revoked",
        "lingered",
        "expired",
        "evicted",
        "deleted",
    ] {
        let line = section.lines().find_map(|line| line.strip_prefix(&format!("prlock_{field}:")));
        assert_eq!(line.and_then(|value| value.parse::<u64>().ok()), Some(0), "{field} in {section}");
    }
    assert!(text(&conn.ok(("INFO", "modules"))).contains("prlock_held:0"));
    assert!(!text(&conn.ok(("INFO",))).contains("prlock_held"));
}

/// The label of a holder of many locks is kept once, and not longer than they are.
#[test]
fn locks_of_one_holder_share_its_label_and_leave_nothing() {
    const LABEL_BYTES: usize = 500;
    const LOCKS: usize = 8_000;
    let server = Server::start();
    let label = |number: usize| format!("worker-{number:06}-{}", "x".repeat(LABEL_BYTES - 14));
    let mut conn = server.conn();
    let mut raw = server.raw();
    let mut claim = |prefix: &str, label_of: &dyn Fn(usize) -> String| {
        let commands: String = (0..LOCKS)
            .map(|number| format!("PRLOCK.CLAIM {prefix}{number} PX 600000 TOKEN t HOLDER {}\r\n", label_of(number)))
            .collect();
        raw.send(commands.as_bytes());
        let reply = b"*2\r\n$1\r\nt\r\n:1700000000000000\r\n".len();
        raw.take_bytes(LOCKS * reply, PATIENCE);
    };
    let back = |before: i64, what: &str| {
        wait_until(what, PATIENCE, || {
            (server.info_number("used_memory") < before + (LOCKS * LABEL_BYTES / 2) as i64).then_some(())
        });
    };
    let before = server.info_number("used_memory");
    claim("k", &|_| label(0));
    // Far less than the labels of all of them.
    back(before, "the memory of locks that share a label");
    assert_eq!(conn.ok(("PRLOCK.REVOKE", label(0))), Value::Int(LOCKS as i64));
    // Each label has two locks, and one of all stays.
    claim("k", &label);
    claim("l", &label);
    let full = server.info_number("used_memory");
    assert!(full > before + (LOCKS * LABEL_BYTES) as i64, "{full} bytes");
    conn.granted(&format!("PRLOCK.CLAIM stays PX 600000 TOKEN t HOLDER {}", label(7)));
    let names = |prefix: &str| (0..LOCKS).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
    for prefix in ["k", "l"] {
        assert_eq!(conn.ok(("DEL", names(prefix))), Value::Int(LOCKS as i64));
    }
    back(before, "the memory of the labels of locks that are gone");
    assert_eq!(bytes(&map(&conn.ok(("PRLOCK.INFO", "stays")))["holder"]), label(7).into_bytes());
    server.assert_locks_agree();
}
