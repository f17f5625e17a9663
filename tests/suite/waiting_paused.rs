//! Times at which nothing may be written: CLIENT PAUSE, FAILOVER, SHUTDOWN; and servers that become replicas.

use std::time::Duration;

use crate::support::{PATIENCE, Server, Value, Waiter, cmd, items, wait_for_offset_equal, wait_until};

/// CASES 53, and PITFALLS 0.2: lapses, time-outs, dead waiters and closed connections under CLIENT PAUSE write nothing.
#[test]
fn nothing_is_written_while_writes_are_paused_and_all_is_served_afterwards() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut witness = server.witness();
    conn.granted("PRLOCK.CLAIM lapses PX 60000 TOKEN a");
    conn.granted("PRLOCK.CLAIM held PX 60000 TOKEN a");
    let mut bound = server.raw();
    bound.call(cmd("PRLOCK.CLAIM bound PX 60000 LINGER 0")).expect("a grant");
    let mut bound_long = server.raw();
    bound_long.call(cmd("PRLOCK.CLAIM long PX 600000 LINGER 60000")).expect("a grant");
    let mut first = server.waits("PRLOCK.CLAIM lapses PX 60000 TOKEN first BLOCK 0");
    let mut after_linger = server.waits("PRLOCK.CLAIM bound PX 60000 TOKEN next BLOCK 0");
    let mut short = server.waits("PRLOCK.CLAIM lapses PX 60000 BLOCK 1500");
    let dead = server.waits("PRLOCK.CLAIM lapses PX 60000 BLOCK 0");
    let mut unblocked = server.waits("PRLOCK.CLAIM lapses PX 60000 BLOCK 0");
    let mut second = server.waits("PRLOCK.CLAIM lapses PX 60000 TOKEN second BLOCK 0");
    // At once, so that nothing lapses before the pause.
    let mut pipeline = redis::pipe();
    pipeline.cmd("PRLOCK.RENEW").arg("lapses").arg("a").arg("PX").arg(100);
    pipeline.cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE");
    let _: ((), ()) = pipeline.query(&mut conn).expect("a renewal and a pause");
    let lapses_at = conn.int("PEXPIRETIME lapses");
    witness.seen();
    bound.close();
    bound_long.close();
    dead.disconnect();
    conn.ok(("CLIENT", "UNBLOCK", unblocked.id));
    unblocked.nulled();
    conn.wait_past(lapses_at + 30);
    short.nulled();
    wait_until("the dead to be gone", PATIENCE, || (server.stat("waiters") == 3).then_some(()));
    let mut keys = conn.listed();
    keys.sort_unstable();
    assert_eq!(keys, ["bound", "held", "long"]);
    assert_eq!(first.reply_now(), None);
    let mut writer = server.background(cmd("PRLOCK.RELEASE held a"));
    let mut newcomer = server.background(cmd("PRLOCK.CLAIM lapses PX 60000 TOKEN newcomer"));
    assert_eq!(writer.reply_within(Duration::from_millis(50)), None);
    witness.assert_nothing("a pause");
    assert_eq!(server.stat("waiters"), 3);

    conn.ok(("CLIENT", "UNPAUSE"));
    assert_eq!(writer.reply(PATIENCE), Ok(Value::Int(1)));
    assert_eq!(newcomer.reply(PATIENCE), Ok(Value::Nil));
    assert_eq!(first.granted().token, b"first");
    assert_eq!(after_linger.granted().token, b"next");
    second.assert_waiting();
    assert_eq!(conn.int("PRLOCK.RELEASE lapses first"), 1);
    assert_eq!(second.granted().token, b"second");
    let rest = conn.int("PTTL long");
    assert!(rest <= 60_000, "{rest}");
}

/// A pause that ends by itself: those who wait are served with nobody's help.
#[test]
fn a_pause_that_runs_out_is_followed_by_the_grant() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    let start_ms = conn.time_ms();
    let mut pipeline = redis::pipe();
    pipeline.cmd("PRLOCK.RENEW").arg("k").arg("a").arg("PX").arg(30);
    pipeline.cmd("CLIENT").arg("PAUSE").arg(300).arg("WRITE");
    let _: ((), ()) = pipeline.query(&mut conn).expect("a renewal and a pause");
    let grant = waiter.granted();
    assert!(grant.fence / 1_000 >= start_ms + 300);
}

/// SHUTDOWN waits for a replica that hangs, and is called off.
#[test]
fn a_shutdown_that_waits_for_replicas_writes_nothing() {
    let server = Server::builder().config("shutdown-timeout", "60").start();
    let replica = server.replica();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    replica.sigstop();
    conn.int("PRLOCK.RENEW k a PX 1000");
    let deadline = conn.int("PEXPIRETIME k");
    conn.ok(("SET", "x", "y"));
    let _shutdown = server.background(("SHUTDOWN", "NOSAVE"));
    wait_until("the shutdown to have begun", PATIENCE, || {
        server
            .log()
            .contains("Waiting for replicas before shutting down")
            .then_some(())
            .or_else(|| server.log().contains("waiting for replicas before shutting down").then_some(()))
    });
    let before = server.dirty();
    conn.wait_past(deadline + 50);
    assert_eq!(waiter.reply_now(), None);
    assert_eq!(server.dirty(), before);
    conn.ok(("SHUTDOWN", "ABORT"));
    replica.sigcont();
    assert_eq!(waiter.granted().token, b"w");
}

/// A FAILOVER that waits for its replica, and is called off.
#[test]
fn a_failover_that_is_called_off_is_followed_by_the_grant() {
    let server = Server::start();
    let replica = server.replica();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    replica.sigstop();
    conn.int("PRLOCK.RENEW k a PX 1000");
    let deadline = conn.int("PEXPIRETIME k");
    conn.ok(("SET", "x", "y"));
    conn.ok(("FAILOVER",));
    let before = server.dirty();
    conn.wait_past(deadline + 50);
    assert_eq!(waiter.reply_now(), None);
    assert_eq!(server.dirty(), before);
    conn.ok(("FAILOVER", "ABORT"));
    replica.sigcont();
    assert_eq!(waiter.granted().token, b"w");
    wait_for_offset_equal(&server, &replica);
    assert_eq!(replica.conn().lock_number("k", "fence"), conn.lock_number("k", "fence"));
}

/// A FAILOVER that succeeds: whoever waits is told to look elsewhere, and nobody is granted anything here.
#[test]
fn a_failover_ends_every_wait_with_an_error() {
    let server = Server::start();
    let replica = server.replica();
    let mut conn = server.conn();
    let held = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a HOLDER h LINGER 0");
    conn.granted("PRLOCK.CLAIM lapses PX 60000 TOKEN a");
    let mut waiters = waiters_of_all_kinds(&server);
    let deadline = conn.int("PEXPIRETIME k");
    wait_for_offset_equal(&server, &replica);
    replica.sigstop();
    conn.int("PRLOCK.RENEW lapses a PX 1000");
    let lapses_at = conn.int("PEXPIRETIME lapses");
    conn.ok(("SET", "x", "y"));
    conn.ok(("FAILOVER",));
    conn.wait_past(lapses_at + 30);
    replica.sigcont();
    wait_until("the roles to be exchanged", PATIENCE, || (replica.is_primary() && !server.is_primary()).then_some(()));
    assert_told_to_look_elsewhere(&mut waiters);
    server.wait_nobody_waits();
    // The connection that holds the lock with LINGER closes on what is a replica now: no business of its.
    drop(conn);
    let mut conn = replica.conn();
    replica.conn().ok(("SET", "y", "z"));
    assert_eq!((conn.lock_number("k", "fence"), conn.int("PEXPIRETIME k")), (held.fence, deadline));
    // The new primary serves, with a greater fence, and the lapsed lock is free there.
    assert!(conn.granted("PRLOCK.CLAIM lapses PX 60000").fence > held.fence);
    let mut waiter = replica.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    assert!(waiter.granted().fence > held.fence);
    assert_eq!(server.stat("claims_after_wait"), 0);
}

/// Plain ones, in RESP3, and on Valkey 9 some that have said that they follow redirections (PITFALLS 0.8).
fn waiters_of_all_kinds(server: &Server) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    for kind in ["resp2", "resp3", "redirect"] {
        for key in ["k", "lapses"] {
            let mut raw = server.raw();
            match kind {
                "resp3" => drop(raw.call(("HELLO", 3)).expect("RESP3")),
                // Other servers don't know it.
                "redirect" => drop(raw.call(("CLIENT", "CAPA", "redirect"))),
                _ => {}
            }
            waiters.push(server.background_on(raw, cmd(&format!("PRLOCK.CLAIM {key} PX 60000 BLOCK 0"))));
        }
    }
    for waiter in &mut waiters {
        wait_until("the wait to begin", PATIENCE, || waiter.is_blocked().then_some(()));
    }
    waiters
}

fn assert_told_to_look_elsewhere(waiters: &mut [Waiter]) {
    for waiter in waiters {
        let error = waiter.failed();
        assert!(["UNBLOCKED ", "REDIRECT ", "READONLY "].iter().any(|code| error.starts_with(code)), "{error}");
        // Redis closes the connection behind its error.
        if let Some(more) = waiter.reply_within(Duration::from_millis(20)) {
            assert_eq!(more, Err("the connection is closed".to_owned()));
        }
    }
}

#[test]
fn a_primary_that_becomes_a_replica_ends_every_wait_with_an_error() {
    let server = Server::start();
    let primary = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    conn.granted("PRLOCK.CLAIM lapses PX 60000 TOKEN a");
    let mut waiters = waiters_of_all_kinds(&server);
    conn.ok(("REPLICAOF", "127.0.0.1", primary.port()));
    assert_told_to_look_elsewhere(&mut waiters);
    server.wait_nobody_waits();
    server.wait_in_sync_with(&primary);
    let mut conn = server.conn();
    assert_eq!(conn.listed(), Vec::<String>::new());
    assert!(conn.err(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0")).starts_with("READONLY"));
    assert_eq!(server.stat("claims_after_wait"), 0);
    // And back: it serves again.
    conn.ok(("REPLICAOF", "NO", "ONE"));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    waiter.granted();
}

/// CASES 51: a writable replica has waiters of its own, and serves them.
#[test]
fn a_writable_replica_serves_those_who_wait_there() {
    let server = Server::start();
    let replica = server.replica_with(|builder| builder.config("replica-read-only", "no"));
    let mut conn = replica.conn();
    conn.granted("PRLOCK.CLAIM k PX 1500 TOKEN a");
    let mut lapsed = replica.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    // In the background, since under load the wait may be over before anybody sees it.
    replica.background(cmd("PRLOCK.CLAIM k PX 60000 TOKEN late BLOCK 30")).nulled();
    assert_eq!(replica.stat("waits_timed_out"), 1);
    lapsed.granted();
    let mut next = replica.waits("PRLOCK.CLAIM k PX 60000 LINGER 0 BLOCK 0");
    let mut last = replica.waits("PRLOCK.CLAIM k PX 60000 TOKEN last BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    next.granted();
    next.disconnect();
    last.granted();
    conn.ok(("DEL", "k"));
    assert_eq!(server.conn().int("DBSIZE"), 0);
}

/// CASES 41, 60: a hand-over reaches a replica whole: token, holder, fence, deadline.
#[test]
fn a_hand_over_reaches_the_replica_whole() {
    let server = Server::start();
    let replica = server.replica();
    let mut conn = server.conn();
    for ends in ["PRLOCK.RELEASE k a", "DEL k", "PEXPIRE k 30", "PRLOCK.REVOKE h", "FLUSHALL"] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a HOLDER h");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w HOLDER next BLOCK 0");
        conn.ok(cmd(ends));
        let grant = waiter.granted();
        wait_for_offset_equal(&server, &replica);
        assert_eq!(replica.conn().state_of(b"k"), conn.state_of(b"k"), "{ends}");
        assert_eq!(replica.conn().lock_number("k", "fence"), grant.fence);
        assert_eq!(items(&replica.conn().ok(("PRLOCK.LIST",))).len(), 1);
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    }
}

/// What waits survives neither a restart nor a crash of the server; what was granted does.
#[test]
fn a_grant_after_waiting_is_in_the_append_only_file() {
    let server = Server::builder().aof().start();
    let mut conn = server.conn();
    for ends in ["PRLOCK.RELEASE k a", "DEL k", "PEXPIRE k 30"] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let left_alone = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
        conn.ok(cmd(ends));
        let grant = waiter.granted();
        server.kill9();
        drop(left_alone);
        server.restart();
        conn = server.conn();
        assert_eq!(conn.lock_number("k", "fence"), grant.fence, "{ends}");
        assert_eq!(server.stat("waiters"), 0);
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    }
    // A clean stop closes the connections of those who wait.
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 BLOCK 0");
    server.stop();
    waiter.raw().wait_closed(PATIENCE);
}
