//! A wall clock that jumps. CASES 18.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::support::{
    Conn, PATIENCE, Server, cmd, compile_c, int, items, map, server_kind, wait_for_offset_equal, wait_until,
};

static CLOCK: LazyLock<PathBuf> = LazyLock::new(|| compile_c("clock.c"));

/// A server whose wall clock can be set.
fn server() -> Server {
    Server::builder().env("LD_PRELOAD", &CLOCK.display().to_string()).start()
}

/// Sets the clock so many seconds off the true time, and waits until the server goes by it.
fn jump(server: &Server, conn: &mut Conn, offset_s: i64) {
    let file = server.folder().join("clock");
    std::fs::write(file.with_extension("new"), offset_s.to_string()).expect("write the offset");
    std::fs::rename(file.with_extension("new"), file).expect("set the offset");
    let true_ms = || std::time::UNIX_EPOCH.elapsed().expect("a clock").as_millis() as i64;
    wait_until("the server's clock", PATIENCE, || {
        ((conn.time_ms() - true_ms() - offset_s * 1_000).abs() < 2_000).then_some(())
    });
}

/// An hour ahead: locks lapse, RENEW gives 0, the next fence is greater, waiters are served.
#[test]
fn an_hour_ahead() {
    let server = server();
    let mut conn = server.conn();
    let first = conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t HOLDER h").fence;
    conn.granted("PRLOCK.CLAIM long PX 86400000 TOKEN t HOLDER h");
    let mut waiter = server.waiter(cmd("PRLOCK.CLAIM k PX 600000 TOKEN w BLOCK 0"));
    jump(&server, &mut conn, 3_600);
    let granted = crate::support::grant(&waiter.reply(PATIENCE).expect("a reply")).expect("a grant");
    assert!(granted.fence > first);
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 1000"), 0);
    assert!(conn.lock_number("long", "held-ms") >= 3_590_000);
    assert_eq!(conn.int("PRLOCK.RENEW long t PX 60000"), 1);
    assert!((1..=60_000).contains(&conn.lock_number("long", "ttl-ms")));
    let last = conn.granted("PRLOCK.CLAIM other PX 60000").fence;
    assert!(last > granted.fence);
}

/// An hour back: no negative age anywhere, fences rise all the same, and waits still end in time.
#[test]
fn an_hour_back() {
    let server = server();
    let mut conn = server.conn();
    let first = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h").fence;
    let mut waiter = server.waiter(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 2000"));
    jump(&server, &mut conn, -3_600);
    for lock in [conn.ok(("PRLOCK.INFO", "k")), items(&conn.ok(("PRLOCK.LIST",)))[0].clone()] {
        let lock = map(&lock);
        for age in ["held-ms", "idle-ms"] {
            assert_eq!(int(&lock[age]), 0, "{age}");
        }
        assert!(int(&lock["ttl-ms"]) > 0);
    }
    assert_eq!(waiter.reply(PATIENCE), Ok(redis::Value::Nil), "the time is up");
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
    assert!((1..=60_000).contains(&conn.int("PTTL k")), "by the clock as it is now");
    assert!((0..60_000).contains(&conn.lock_number("k", "idle-ms")));
    let mut last = first;
    for round in 0..3 {
        let fence = conn.granted(&format!("PRLOCK.CLAIM k PX 60000 TOKEN t{round} STEAL")).fence;
        assert!(fence > last);
        last = fence;
    }
    // A release hands on as ever.
    let mut waiter = server.waiter(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0"));
    assert_eq!(conn.int("PRLOCK.RELEASE k t2"), 1);
    assert!(crate::support::grant(&waiter.reply(PATIENCE).expect("a reply")).is_some());
    // And a deadline that passes by the new clock wakes the next one.
    conn.granted("PRLOCK.CLAIM short PX 1500 TOKEN t");
    let mut waiter = server.waiter(cmd("PRLOCK.CLAIM short PX 60000 BLOCK 0"));
    assert!(crate::support::grant(&waiter.reply(PATIENCE).expect("a reply")).is_some());
}

/// A lock from a clock that was two days ahead: no client may RESTORE it, but a restart and a replica must take it as it is,
/// and fences go on from there.
#[test]
fn a_lock_from_two_days_ahead_is_loaded_and_replicated_and_not_restored() {
    let server = server();
    let mut conn = server.conn();
    jump(&server, &mut conn, 2 * 86_400);
    let fence = conn.granted("PRLOCK.CLAIM k PX 86400000 TOKEN t HOLDER h").fence;
    let payload = crate::support::bytes(&conn.ok(("DUMP", "k")));
    conn.ok(("SAVE",));
    jump(&server, &mut conn, 0);
    server.restart();
    let mut conn = server.conn();
    let replica = server.replica();
    let mut there = replica.conn();
    for conn in [&mut conn, &mut there] {
        assert_eq!(conn.lock_number("k", "fence"), fence);
        assert_eq!(conn.listed(), ["k"]);
    }
    assert!(conn.granted("PRLOCK.CLAIM other PX 60000").fence > fence);
    let error = conn.err(("RESTORE", "copy", 60_000, &payload[..]));
    assert!(error.starts_with("ERR Bad data format"), "{error}");
    // By the stream as well.
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
    crate::support::wait_for_offset_equal(&server, &replica);
    assert_eq!(replica.lock_states(), server.lock_states());
    there.ok(cmd("REPLICAOF NO ONE"));
    assert!(there.granted("PRLOCK.CLAIM another PX 60000").fence > fence);
}

/// What looks past its deadline on a replica whose clock is ahead is its primary's to end or to prolong: until then it is
/// left out, and then it is listed under whatever name it has, without a walk over the keyspace for each list.
#[test]
fn a_replica_ahead_of_its_primary_lists_what_the_primary_prolongs() {
    let primary = Server::start();
    for (db, read_only) in [(0, "yes"), (3, "no")] {
        let replica = Server::builder()
            .env("LD_PRELOAD", &CLOCK.display().to_string())
            .config("replica-read-only", read_only)
            .start();
        let mut there = replica.conn();
        there.select(db);
        jump(&replica, &mut there, 3_600);
        there.ok(("REPLICAOF", "127.0.0.1", primary.port()));
        replica.wait_in_sync_with(&primary);
        let mut conn = primary.conn();
        conn.select(db);
        for key in ["stays", "renamed", "moved"] {
            conn.claim_px(key, 600_000);
        }
        conn.ok(("RENAME", "renamed", "another"));
        let payload = crate::support::bytes(&conn.ok(("DUMP", "stays")));
        conn.ok(("RESTORE", "restored", 600_000, payload));
        conn.ok(("MOVE", "moved", 5));
        wait_for_offset_equal(&primary, &replica);
        for _ in 0..2 {
            assert_eq!(there.list(), Vec::<String>::new());
        }
        // Renamed once more after it was found.
        conn.ok(("RENAME", "another", "third"));
        wait_for_offset_equal(&primary, &replica);
        assert_eq!(there.list(), Vec::<String>::new());
        assert_eq!(replica.stat("held"), 4);
        conn.ok(("PEXPIRE", "third", 36_000_000));
        conn.ok(("PERSIST", "restored"));
        conn.ok(("PEXPIRE", "stays", 36_000_000));
        wait_for_offset_equal(&primary, &replica);
        assert_eq!(there.list(), ["restored", "stays", "third"]);
        conn.select(5);
        conn.ok(("PERSIST", "moved"));
        wait_for_offset_equal(&primary, &replica);
        there.select(5);
        assert_eq!(there.list(), ["moved"]);
        replica.assert_locks_agree();
        conn.ok(("FLUSHALL",));
        wait_for_offset_equal(&primary, &replica);
        assert_eq!((there.list(), replica.stat("held")), (Vec::new(), 0));
    }
}

/// A payload is held against the clock as it is now, and not as it was when a payload came before: it may have been set back.
#[test]
fn a_clock_set_back_makes_a_payload_implausible_again() {
    if server_kind().is_valkey() {
        // It binds a module's calls to the C library past what is preloaded: only the server's own clock would jump.
        return;
    }
    let server = server();
    let mut conn = server.conn();
    jump(&server, &mut conn, 2 * 86_400);
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let payload = crate::support::bytes(&conn.ok(("DUMP", "k")));
    for days in [2, 0, 2] {
        jump(&server, &mut conn, days * 86_400);
        match conn.call(("RESTORE", "copy", 60_000, &payload[..], "REPLACE")) {
            Ok(_) => assert_eq!(days, 2),
            Err(error) => assert!(days == 0 && error.starts_with("ERR Bad data format"), "{days}: {error}"),
        }
    }
}
