//! BLOCK: the queue, the hand-over, and the ends of a wait.

use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Server, Value, cmd, grant, int, items, wait_until};

/// CASES 16: the whole TTL starts at the grant, however long the wait was. CASES 31: no helper keys.
#[test]
fn first_come_is_first_served_with_a_full_deadline() {
    let server = Server::start();
    let mut conn = server.conn();
    let first = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiters: Vec<_> =
        (0..3).map(|n| server.waits(&format!("PRLOCK.CLAIM k PX 10000 HOLDER w{n} BLOCK 0"))).collect();
    assert_eq!(server.waiters_of("k"), 3);
    assert_eq!((server.stat("waiters"), server.stat("waits_started")), (3, 3));
    assert_eq!(conn.int("DBSIZE"), 1);

    let (mut token, mut fence) = (first.token, first.fence);
    for (number, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", "k", &token[..]))), 1);
        let rest = conn.int("PTTL k");
        assert!((9_000..=10_000).contains(&rest), "{rest}");
        let grant = waiter.granted();
        waiter.assert_no_more_replies();
        assert!(grant.fence > fence);
        assert_eq!(conn.lock_number("k", "fence"), grant.fence);
        assert_eq!(conn.lock_holder("k"), format!("w{number}"));
        assert_eq!(server.waiters_of("k"), 2 - number as i64);
        (token, fence) = (grant.token, grant.fence);
    }
    assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", "k", &token[..]))), 1);
    assert_eq!(conn.int("DBSIZE"), 0);
    server.wait_nobody_waits();
    assert_eq!((server.stat("claims_after_wait"), server.stat("claims_refused")), (3, 0));
}

/// CASES 32: a releaser that claims again in the same pipeline comes behind those who wait.
#[test]
fn who_releases_and_claims_again_comes_behind() {
    let server = Server::start();
    server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut second = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN b BLOCK 0");
    let mut third = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN c BLOCK 0");
    for ends in
        ["PRLOCK.RELEASE k a", "DEL k", "UNLINK k", "FLUSHDB", "FLUSHALL ASYNC", "PRLOCK.REVOKE w", "PEXPIRE k 0"]
    {
        let mut raw = server.raw();
        server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN a STEAL HOLDER w");
        raw.send_lines(["PRLOCK.CLAIM x PX 60000", ends, "PRLOCK.CLAIM k PX 60000 TOKEN a"]);
        raw.reply(PATIENCE).expect("a lock elsewhere");
        raw.reply(PATIENCE).expect("the end of the lock");
        assert_eq!(raw.reply(PATIENCE), Ok(Value::Nil), "{ends}");
        let granted = second.granted();
        assert_eq!(granted.token, b"b");
        third.assert_waiting();
        server.conn().ok(("DEL", "x"));
        // Whoever was granted waits again, behind the other.
        std::mem::swap(&mut second, &mut third);
        assert_eq!(server.conn().lock_number("k", "fence"), granted.fence);
        server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN a STEAL");
        let (b, c) = (
            server.waits("PRLOCK.CLAIM k PX 60000 TOKEN b BLOCK 0"),
            server.waits("PRLOCK.CLAIM k PX 60000 TOKEN c BLOCK 0"),
        );
        let mut old = std::mem::replace(&mut second, b);
        std::mem::replace(&mut third, c).disconnect();
        server.conn().ok(("CLIENT", "UNBLOCK", old.id));
        old.nulled();
        wait_until("two to wait", PATIENCE, || (server.stat("waiters") == 2).then_some(()));
    }
}

#[test]
fn a_newcomer_that_finds_the_deadline_passed_comes_behind() {
    let server = Server::start();
    let mut conn = server.conn();
    for line in [
        "PRLOCK.CLAIM k PX 60000 TOKEN n",
        "PRLOCK.CLAIM k PX 60000 TOKEN n STEALIF 5",
        "PRLOCK.CLAIM k PX 60000 TOKEN old",
        "PRLOCK.RENEW k old PX 60000",
        "PRLOCK.RELEASE k old",
    ] {
        let grant = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN old");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        // The deadline and the newcomer in one transaction: no timer comes between.
        let line = line.replace("STEALIF 5", &format!("STEALIF {}", grant.fence));
        conn.ok(("MULTI",));
        conn.ok(("PEXPIREAT", "k", 1));
        conn.ok(cmd(&line));
        let replies = items(&conn.ok(("EXEC",)));
        assert!(matches!(replies[1], Value::Nil | Value::Int(0)), "{line}: {replies:?}");
        assert_eq!(waiter.granted().token, b"w", "{line}");
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    }
}

#[test]
fn a_wait_ends_with_null_when_its_time_is_up() {
    let server = Server::start();
    server.conn().granted("PRLOCK.CLAIM k PX 60000");
    let start = Instant::now();
    let mut late = server.background(cmd("PRLOCK.CLAIM k PX 1000 BLOCK 1500"));
    let mut early = server.background(cmd("PRLOCK.CLAIM k PX 1000 BLOCK 100"));
    early.nulled();
    let after = start.elapsed();
    assert!(after >= Duration::from_millis(100), "{after:?}");
    assert_eq!(late.reply_now(), None);
    late.nulled();
    let after = start.elapsed();
    assert!(after >= Duration::from_millis(1_500), "{after:?}");
    early.assert_no_more_replies();
    late.assert_no_more_replies();
    server.wait_nobody_waits();
    assert_eq!((server.stat("waits_timed_out"), server.stat("waits_abandoned")), (2, 0));
}

/// Not a fraction of a ms too early, however short the wait and wherever in a ms it begins.
#[test]
fn no_wait_ends_early() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 600000");
    for _ in 0..200 {
        let start = Instant::now();
        conn.refused("PRLOCK.CLAIM k PX 1000 BLOCK 2");
        let after = start.elapsed();
        assert!(after >= Duration::from_millis(2), "{after:?}");
    }
}

/// CASES 33, 35: the dead are passed over, in every database.
#[test]
fn the_dead_are_passed_over() {
    let server = Server::start();
    for db in [0, 5] {
        let mut conn = server.conn();
        conn.ok(("SELECT", db));
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let killed = server.waits_in(db, "PRLOCK.CLAIM k PX 1000 BLOCK 0");
        let gone = server.waits_in(db, "PRLOCK.CLAIM k PX 1000 BLOCK 60000");
        let mut alive = server.waits_in(db, "PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        conn.ok(("CLIENT", "KILL", "ID", killed.id));
        gone.disconnect();
        wait_until("two to be gone", PATIENCE, || (server.stat("waiters") == 1).then_some(()));
        assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
        assert_eq!(alive.granted().token, b"w");
        server.wait_nobody_waits();
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
        assert_eq!(conn.int("DBSIZE"), 0);
    }
    assert_eq!(server.stat("waits_abandoned"), 4);
    assert_eq!(server.stat("claims_after_wait"), 2);
}

/// CASES 34: however a wait ends, there is one reply, and no grant afterwards.
#[test]
fn whoever_is_unblocked_is_never_granted_afterwards() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut plain = server.waits("PRLOCK.CLAIM k PX 1000 BLOCK 0");
    let mut timeout = server.waits("PRLOCK.CLAIM k PX 1000 BLOCK 60000");
    let mut error = server.waits("PRLOCK.CLAIM k PX 1000 BLOCK 60000");
    assert_eq!(int(&conn.ok(("CLIENT", "UNBLOCK", plain.id))), 1);
    assert_eq!(int(&conn.ok(("CLIENT", "UNBLOCK", timeout.id, "TIMEOUT"))), 1);
    assert_eq!(int(&conn.ok(("CLIENT", "UNBLOCK", error.id, "ERROR"))), 1);
    plain.nulled();
    timeout.nulled();
    assert!(error.failed().starts_with("UNBLOCKED "));
    assert_eq!(int(&conn.ok(("CLIENT", "UNBLOCK", error.id, "ERROR"))), 0);
    server.wait_nobody_waits();
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    assert_eq!(conn.int("EXISTS k"), 0);
    for waiter in [&mut plain, &mut timeout, &mut error] {
        waiter.assert_no_more_replies();
    }
    assert_eq!((server.stat("waits_abandoned"), server.stat("claims_after_wait")), (3, 0));
}

/// CASES 39: a grant whose receiver is gone lapses at its deadline, and the next is woken then.
#[test]
fn after_a_dead_receiver_the_next_is_woken_at_the_deadline() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut first = server.waits("PRLOCK.CLAIM k PX 150 BLOCK 0");
    let mut second = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    let dead = first.granted();
    first.disconnect();
    let next = second.granted();
    assert!(next.fence > dead.fence);
    assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", dead.token, "PX", 1_000))), 0);
}

/// CASES 40.
#[test]
fn a_subscriber_in_resp3_gets_a_clear_reply() {
    let server = Server::start();
    server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut raw = server.raw();
    raw.call(("HELLO", 3)).expect("RESP3");
    raw.call(("SUBSCRIBE", "channel")).expect("SUBSCRIBE");
    let mut waiter = server.background_on(raw, cmd("PRLOCK.CLAIM k PX 60000 TOKEN b BLOCK 0"));
    let reply = wait_until("a reply or a wait", PATIENCE, || {
        waiter.reply_now().map(Some).or_else(|| waiter.is_blocked().then_some(None))
    });
    match reply {
        // Servers that can't block such a connection.
        Some(reply) => {
            let error = reply.expect_err("an error");
            assert!(error.starts_with("ERR BLOCK is not possible"), "{error}");
            assert_eq!(server.stat("waiters"), 0);
        }
        None => {
            assert_eq!(server.conn().int("PRLOCK.RELEASE k a"), 1);
            assert_eq!(waiter.granted().token, b"b");
        }
    }
    server.wait_nobody_waits();
}

#[test]
fn a_claim_sent_again_is_not_refused_by_its_own_lock() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut lost = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    let mut rival = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN r BLOCK 0");
    let mut again = server.waits("PRLOCK.CLAIM k PX 30000 TOKEN w HOLDER again BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    let (first, second) = (lost.granted(), again.granted());
    assert_eq!(first, second);
    rival.assert_waiting();
    assert_eq!(conn.lock_holder("k"), "again");
    // The newcomer with the holder's token is granted at once.
    assert_eq!(conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0").fence, first.fence);
    // A newcomer with a waiter's token that gets the lock some other way brings the waiter along.
    let stolen = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN r STEAL");
    wait_until("the waiter to be granted", PATIENCE, || rival.reply_now()).expect("a grant");
    assert_eq!(conn.lock_number("k", "fence"), stolen.fence);
}

/// One of two waiters with the same token is killed between grant and reply: the other knows of the grant, which stands.
#[test]
fn a_grant_that_one_of_two_has_heard_of_stands() {
    let server = Server::start();
    let mut conn = server.conn();
    for kills_first in [false, true] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut first = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let mut second = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let victim = if kills_first { first.id } else { second.id };
        let mut pipeline = redis::pipe();
        pipeline.cmd("PRLOCK.RELEASE").arg("k").arg("a");
        pipeline.cmd("CLIENT").arg("KILL").arg("ID").arg(victim);
        let mut raw = server.raw();
        raw.send(&pipeline.get_packed_pipeline());
        raw.reply(PATIENCE).expect("the release");
        let heard = if kills_first { second.granted() } else { first.granted() };
        server.wait_nobody_waits();
        // Two more turns of the timer.
        let mut other = server.background(cmd("PRLOCK.CLAIM k PX 1000 BLOCK 60"));
        other.nulled();
        assert_eq!(conn.lock_number("k", "fence"), heard.fence);
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    }
}

#[test]
fn a_steal_asks_for_no_turn_and_the_queue_waits_on() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    let thief = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN thief STEAL");
    waiter.assert_waiting();
    assert_eq!(server.waiters_of("k"), 1);
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 0);
    assert_eq!(conn.int("PRLOCK.RELEASE k thief"), 1);
    assert!(waiter.granted().fence > thief.fence);
}

/// Nor does it ask on a key that has become free in this very moment: nobody is granted a lock just to lose it.
#[test]
fn a_steal_of_a_lapsed_lock_robs_no_waiter() {
    let server = Server::start();
    let mut conn = server.conn();
    for ends in ["PEXPIREAT k 1", "DEL k", "SET k x PX 60000"] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let granted_after_wait = server.stat("claims_after_wait");
        // In one transaction: no timer comes between.
        conn.ok(("MULTI",));
        conn.ok(cmd(ends));
        conn.ok(cmd("PRLOCK.CLAIM k PX 60000 TOKEN thief STEAL"));
        let replies = items(&conn.ok(("EXEC",)));
        assert_eq!(grant(&replies[1]).expect("a grant").token, b"thief", "{ends}");
        assert_eq!(server.stat("claims_after_wait"), granted_after_wait, "{ends}");
        waiter.assert_waiting();
        assert_eq!(conn.int("PRLOCK.RELEASE k thief"), 1);
        assert_eq!(waiter.granted().token, b"w");
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    }
}

#[test]
fn queues_of_two_databases_and_two_keys_are_apart() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    conn.granted("PRLOCK.CLAIM l PX 60000 TOKEN a");
    conn.ok(("SELECT", 3));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut here = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    let mut other = server.waits("PRLOCK.CLAIM l PX 60000 BLOCK 0");
    let mut there = server.waits_in(3, "PRLOCK.CLAIM k PX 60000 BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    there.granted();
    here.assert_waiting();
    other.assert_waiting();
    conn.ok(("SELECT", 0));
    assert_eq!(conn.int("PRLOCK.RELEASE l a"), 1);
    other.granted();
    here.assert_waiting();
}

#[test]
fn a_renewal_puts_the_wake_up_off() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 1000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2_200) {
        assert_eq!(conn.int("PRLOCK.RENEW k a PX 1000"), 1);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(waiter.reply_now(), None);
    waiter.granted();
    assert_eq!(conn.int("PRLOCK.RENEW k a PX 1000"), 0);
}

#[test]
fn bad_times_are_errors_and_nobody_waits() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000");
    for (options, error) in [
        ("BLOCK -1", "ERR timeout is negative"),
        ("BLOCK -9223372036854775808", "ERR timeout is negative"),
        ("BLOCK 1.5", "ERR value is not an integer or out of range"),
        ("BLOCK 1e3", "ERR value is not an integer or out of range"),
        ("BLOCK ''", "ERR value is not an integer or out of range"),
        ("BLOCK 9223372036854775808", "ERR value is not an integer or out of range"),
        ("BLOCK", "ERR syntax error"),
        ("BLOCK 5 BLOCK 5", "ERR syntax error"),
        ("BLOCK 5 STEAL", "ERR syntax error"),
        ("STEAL BLOCK 5", "ERR syntax error"),
        ("BLOCK 5 STEALIF 7", "ERR syntax error"),
        ("LINGER -1", "ERR value is out of range, must be positive"),
        ("LINGER 1.5", "ERR value is not an integer or out of range"),
        ("LINGER 9223372036854775808", "ERR value is not an integer or out of range"),
        ("LINGER", "ERR syntax error"),
        ("LINGER 1 LINGER 1", "ERR syntax error"),
    ] {
        assert_eq!(conn.err(cmd(&format!("PRLOCK.CLAIM k PX 1000 {options}"))), error, "{options}");
    }
    assert_eq!(server.stat("waits_started"), 0);
    // The longest wait there is.
    let waiter = server.waits("PRLOCK.CLAIM k PX 1000 BLOCK 9223372036854775807");
    waiter.disconnect();
    server.wait_nobody_waits();
}

#[test]
fn commands_sent_behind_a_wait_are_answered_behind_it() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    waiter.raw().send_command(cmd("PRLOCK.RELEASE k w"));
    waiter.raw().send_command(cmd("PRLOCK.CLAIM k PX 60000 TOKEN x BLOCK 0"));
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    assert_eq!(waiter.granted().token, b"w");
    assert_eq!(waiter.reply(PATIENCE), Ok(Value::Int(1)));
    let reply = waiter.reply(PATIENCE).expect("a grant");
    assert_eq!(grant(&reply).expect("a grant").token, b"x");
}

/// CASES 37.
#[test]
fn the_module_stays_loaded_while_somebody_waits() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    assert!(conn.err(("MODULE", "UNLOAD", "prlock")).starts_with("ERR "));
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    waiter.granted();
}

/// A hand-over is one change: released by one, claimed by the other, once each for replicas and subscribers.
#[test]
fn a_hand_over_is_seen_once_from_every_side() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut witness = server.witness();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    witness.seen();
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    witness.assert_nothing("a wait");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    waiter.granted();
    let (commands, events) = witness.seen();
    assert_eq!(commands, ["PRLOCK.APPLY k"]);
    assert_eq!(events, ["prlock.release k", "prlock.claim k"]);
    // A wait that ends without a grant is no change.
    let mut waiter = server.background(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 1"));
    waiter.nulled();
    witness.assert_nothing("a time-out");
}
