//! What has killed servers: the traps of the module API, each sprung on purpose. The server lives, and its data are right.

use std::time::{Duration, Instant};

use crate::support::{
    Conn, NOISE, PATIENCE, Server, Value, bytes, cmd, grant, int, items, lock_info, module_path, wait_for_offset_equal,
    wait_until,
};

fn assert_lives(server: &Server) {
    assert_eq!(server.conn().ok(("PING",)), Value::SimpleString("PONG".into()));
    server.assert_locks_agree();
}

/// While writes are paused, a lock lapses with a waiter behind it and a holder with LINGER goes: nothing is written until
/// the pause ends, and then both happen. (A write in a timer then is an assertion of the server's.) CASES 53.
#[test]
fn nothing_is_written_while_writes_are_paused() {
    let server = Server::start();
    let replica = server.replica();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let mut holder = server.raw();
        holder.call(("SELECT", db)).expect("SELECT");
        holder.call(cmd("PRLOCK.CLAIM lingers PX 60000 TOKEN t LINGER 0")).expect("a grant");
        conn.claim_px("lapses", 400);
        let at_ms = int(&conn.ok(("PEXPIRETIME", "lapses")));
        let mut prepared = server.raw();
        prepared.call(("SELECT", db)).expect("SELECT");
        let mut waiter = server.waiter_on(prepared, cmd("PRLOCK.CLAIM lapses PX 60000 TOKEN w BLOCK 0"));
        conn.ok(cmd("CLIENT PAUSE 60000 WRITE"));
        let mut stream_end = server.info_number("master_repl_offset");
        holder.close();
        conn.wait_past(at_ms);
        // Time for every timer to try.
        let until = Instant::now() + Duration::from_millis(150);
        while Instant::now() < until {
            assert_eq!(waiter.reply_now(), None);
            assert_eq!(conn.list(), ["lingers"]);
        }
        let offset = server.info_number("master_repl_offset");
        // The server's own PING may come between.
        assert!(offset - stream_end < 60, "{} bytes were written during the pause", offset - stream_end);
        stream_end = offset;
        conn.ok(cmd("CLIENT UNPAUSE"));
        assert!(waiter.reply(PATIENCE).is_ok());
        wait_until("the lock of the closed connection to go", PATIENCE, || (conn.list() == ["lapses"]).then_some(()));
        assert!(server.info_number("master_repl_offset") > stream_end);
        wait_for_offset_equal(&server, &replica);
        assert_eq!(replica.lock_states(), server.lock_states());
        conn.ok(("FLUSHALL",));
    }
    assert_lives(&server);
    assert_lives(&replica);
}

/// A transaction that pauses writes and then claims a key past its deadline, which a paused server looks over but does not
/// delete. (Adding it is an assertion of Redis; Valkey keeps what lay there, and the claim was granted for nothing.)
#[test]
fn a_transaction_that_pauses_may_claim_a_key_past_its_deadline() {
    let server = Server::start();
    let replica = server.replica();
    let mut conn = server.conn();
    conn.ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    let late = ["PRLOCK.CLAIM k PX 20 TOKEN old LINGER 60000", "SET k old PX 20"];
    for (line, option) in late.into_iter().flat_map(|line| ["", "STEAL", "BLOCK 0"].map(|option| (line, option))) {
        for is_awaited in [false, true] {
            conn.ok(cmd(line));
            let mut waiter = is_awaited.then(|| server.background(cmd("PRLOCK.CLAIM k PX 60000 TOKEN new BLOCK 0")));
            let claim = format!("PRLOCK.CLAIM k PX 60000 TOKEN new {option}");
            let mut raw = server.raw();
            // It lapses in the sleep, so that nothing comes between.
            raw.send_lines(["DEBUG SLEEP 0.05", "MULTI", "CLIENT PAUSE 60000 WRITE", &claim, "EXEC"]);
            (0..4).for_each(|_| drop(raw.reply(PATIENCE)));
            let replies = items(&raw.reply(PATIENCE).expect("EXEC"));
            let fence = grant(&replies[1]).expect("a grant").fence;
            assert_eq!(conn.lock_number("k", "fence"), fence);
            conn.ok(cmd("CLIENT UNPAUSE"));
            if let Some(waiter) = &mut waiter {
                assert_eq!(waiter.granted().fence, fence, "the same token");
            }
            assert_eq!(conn.lock_number("k", "fence"), fence);
            assert!(conn.int("PTTL k") > 20);
            wait_for_offset_equal(&server, &replica);
            assert_eq!(replica.lock_states(), server.lock_states());
            server.assert_locks_agree();
            assert_eq!(conn.int("PRLOCK.RELEASE k new"), 1);
        }
    }
    assert_lives(&server);
    assert_lives(&replica);
}

/// The same where the transaction makes the server a replica, which leaves such a key to its primary.
#[test]
fn a_transaction_that_demotes_may_claim_a_key_past_its_deadline() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    let late = ["PRLOCK.CLAIM k PX 20 TOKEN old LINGER 60000", "SET k old PX 20"];
    for (line, option) in late.into_iter().flat_map(|line| ["", "STEAL", "BLOCK 0"].map(|option| (line, option))) {
        conn.ok(cmd(line));
        let claim = format!("PRLOCK.CLAIM k PX 60000 TOKEN new {option}");
        let mut raw = server.raw();
        // It lapses in the sleep, so that nothing comes between.
        raw.send_lines(["DEBUG SLEEP 0.05", "MULTI", "REPLICAOF 127.0.0.1 1", &claim, "EXEC"]);
        (0..4).for_each(|_| drop(raw.reply(PATIENCE)));
        let replies = items(&raw.reply(PATIENCE).expect("EXEC"));
        let fence = grant(&replies[1]).expect("a grant").fence;
        conn = server.conn();
        conn.ok(cmd("REPLICAOF NO ONE"));
        assert_eq!(conn.lock_number("k", "fence"), fence);
        server.assert_locks_agree();
        assert_eq!(conn.int("PRLOCK.RELEASE k new"), 1);
    }
    assert_lives(&server);
}

/// A grant after an expiry is replicated behind the deletion, never before it.
#[test]
fn a_grant_after_an_expiry_comes_behind_the_deletion() {
    let server = Server::start();
    let replica = server.replica();
    for db in [0, 3] {
        for active in [0, 1] {
            let mut conn = server.conn();
            conn.select(db);
            conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", active));
            let mut stream = server.replication_stream();
            conn.claim_px("k", 60);
            let mut prepared = server.raw();
            prepared.call(("SELECT", db)).expect("SELECT");
            let mut waiter = server.background_on(prepared, cmd("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0"));
            assert!(waiter.reply(PATIENCE).is_ok());
            let names: Vec<String> = stream
                .drain_without(NOISE)
                .iter()
                .map(|command| String::from_utf8_lossy(&command[0]).replace("UNLINK", "DEL"))
                .filter(|name| name != "MULTI" && name != "EXEC")
                .collect();
            assert_eq!(names, ["PRLOCK.APPLY", "DEL", "PRLOCK.APPLY"]);
            wait_for_offset_equal(&server, &replica);
            assert_eq!(replica.lock_states(), server.lock_states());
            conn.ok(("FLUSHALL",));
        }
    }
    assert_lives(&replica);
}

/// Values are freed by a background thread while the main thread claims, lists and revokes.
#[test]
fn values_freed_in_the_background_race_with_nothing() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        for round in 0..15 {
            let mut pipe = redis::pipe();
            for number in 0..500 {
                pipe.cmd("PRLOCK.CLAIM").arg(format!("k{number}")).arg(&["PX", "60000", "HOLDER", "h", "LINGER", "9"]);
            }
            pipe.cmd(if round % 2 == 0 { "FLUSHALL" } else { "FLUSHDB" }).arg("ASYNC");
            for number in 0..500 {
                pipe.cmd("PRLOCK.CLAIM").arg(format!("k{number}")).arg(&["PX", "60000", "HOLDER", "h"]);
                pipe.cmd("UNLINK").arg(format!("k{}", number / 2));
            }
            pipe.cmd("PRLOCK.LIST").arg(&["HOLDER", "h"]);
            pipe.cmd("PRLOCK.REVOKE").arg("h");
            pipe.query::<Value>(&mut *conn).expect("a pipeline");
            assert_eq!(conn.gauge("held"), 0);
        }
    }
    assert_lives(&server);
}

/// A module that refuses to load after it has subscribed leaves a callback into freed memory: so it refuses before.
#[test]
fn a_refused_load_leaves_nothing_behind() {
    let server = Server::builder().without_module().config("notify-keyspace-events", "KEA").start();
    let mut conn = server.conn();
    let path = module_path().display().to_string();
    for args in [vec!["unknown", "1"], vec!["max-ttl-ms", "-1"], vec!["max-ttl-ms"]] {
        let mut command = vec!["MODULE", "LOAD", &path];
        command.extend(args);
        assert!(conn.err(command).starts_with("ERR"));
        // All that the module would hear of.
        for line in ["SET k x PX 1", "DEL k", "SET k x", "EXPIRE k 0", "SWAPDB 0 1", "FLUSHALL", "INFO everything"] {
            conn.ok(cmd(line));
        }
        conn.ok(cmd("CONFIG SET maxmemory-policy allkeys-lru"));
        conn.ok(cmd("CONFIG SET maxmemory-policy noeviction"));
        server.raw().close();
    }
    conn.ok(("MODULE", "LOAD", &path));
    conn.claim("k");
    assert!(conn.err(("MODULE", "LOAD", &path)).starts_with("ERR"), "a second time");
    assert_eq!(conn.list(), ["k"]);
    assert_lives(&server);
}

/// NUL, format directives and bytes that are no text, wherever a name goes: logs, events, replies, replication.
#[test]
fn names_of_any_bytes_go_everywhere() {
    let server = Server::builder().config("notify-keyspace-events", "KEA").config("loglevel", "debug").start();
    let replica = server.replica();
    let long = vec![b'%'; 65_536];
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        for key in [&b"\0"[..], b"a\0b", b"%s%n%s%n", b"\xff\xfe", b"", b"\r\n", &long] {
            let part = &key[..key.len().min(512)];
            let token = if part.is_empty() { b"t" } else { part };
            let claim = |conn: &mut Conn| {
                conn.ok(("PRLOCK.CLAIM", key, "PX", 60_000, "TOKEN", token, "HOLDER", part, "LINGER", 5))
            };
            assert_eq!(bytes(&crate::support::items(&claim(&mut conn))[0]), token);
            assert_eq!(conn.list_with(&[b"HOLDER", part]), [key]);
            assert_eq!(conn.list_with(&[b"AFTER", key]), Vec::<Vec<u8>>::new());
            conn.ok(("RENAME", key, "other"));
            assert_eq!(conn.list_with(&[]), [b"other"]);
            conn.ok(("RENAME", "other", key));
            conn.ok(("DEBUG", "RELOAD"));
            assert_eq!(conn.list_with(&[]), [key]);
            wait_for_offset_equal(&server, &replica);
            assert_eq!(replica.lock_states(), server.lock_states());
            assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, token, "PX", 60_000))), 1);
            if !part.is_empty() {
                assert_eq!(int(&conn.ok(("PRLOCK.REVOKE", part))), 1);
                claim(&mut conn);
            }
            assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, token))), 1);
        }
    }
    assert_lives(&server);
    assert_lives(&replica);
}

/// A subscription to generic events would leave the client of MOVE and COPY in the wrong database on Valkey 8.1.
#[test]
fn move_and_copy_leave_the_client_where_it_was() {
    let server = Server::start();
    for (db, other) in [(0, 3), (3, 0)] {
        let mut conn = server.conn();
        conn.select(db);
        conn.ok(("SET", "plain", "x"));
        conn.claim("lock");
        assert_eq!(int(&conn.ok(("COPY", "plain", "copy", "DB", other))), 1);
        assert_eq!(int(&conn.ok(("MOVE", "plain", other))), 1);
        assert_eq!(int(&conn.ok(("MOVE", "lock", other))), 1);
        conn.ok(("SET", "here", "x"));
        conn.claim("lock here");
        let mut there = server.conn();
        there.select(other);
        assert_eq!(int(&there.ok(("EXISTS", "here"))), 0);
        assert_eq!(there.list(), ["lock"]);
        assert_eq!(conn.list(), ["lock here"]);
        assert_eq!(int(&conn.ok(("DBSIZE",))), 2);
        conn.ok(("FLUSHALL",));
    }
    assert_lives(&server);
}

/// Timers that are set anew from their own callback, stopped and started by commands, all at once.
#[test]
fn timers_set_anew_from_everywhere() {
    let server = Server::start();
    let mut waiters = Vec::new();
    for (number, db) in (0..40).zip([0, 3].into_iter().cycle()) {
        let mut conn = server.conn();
        conn.select(db);
        conn.ok(("PRLOCK.CLAIM", format!("k{}", number % 4), "PX", 20 + number, "STEAL", "HOLDER", "h"));
        let mut prepared = server.raw();
        prepared.call(("SELECT", db)).expect("SELECT");
        let key = format!("k{}", number % 4);
        let (ttl_ms, block_ms) = (1 + number % 7, 1 + number * 3);
        let words = ["PRLOCK.CLAIM", &key, "PX", &ttl_ms.to_string(), "BLOCK", &block_ms.to_string(), "LINGER", "0"]
            .map(str::to_owned)
            .to_vec();
        waiters.push(server.background_on(prepared, words));
    }
    for mut waiter in waiters {
        // Granted, or its time was up: one reply.
        waiter.reply(PATIENCE).expect("no error");
        waiter.assert_no_more_replies();
    }
    wait_until("all locks to lapse", PATIENCE, || (server.conn().gauge("held") == 0).then_some(()));
    assert_eq!(server.conn().gauge("waiters"), 0);
    assert_lives(&server);
}

/// The module's own call into the server calls the module back: a key found past its deadline by CLAIM, RENEW, RELEASE,
/// INFO, LIST and REVOKE, and a value replaced by STEAL.
#[test]
fn the_server_calls_back_from_inside_a_call() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
        let lapsed = |conn: &mut Conn| {
            for key in ["a", "b", "c", "d", "e", "f", "g"] {
                conn.claim_px(key, 1);
            }
            conn.claim("held");
            let at_ms = int(&conn.ok(("PEXPIRETIME", "held")));
            assert!(at_ms > 0);
            let now_ms = conn.time_ms();
            conn.wait_past(now_ms + 1);
        };
        lapsed(&mut conn);
        assert_eq!(conn.list(), ["held"]);
        lapsed(&mut conn);
        assert_eq!(int(&conn.ok(("PRLOCK.REVOKE", "h"))), 1);
        lapsed(&mut conn);
        assert_eq!(lock_info(&mut conn, "a"), None);
        assert_eq!(conn.int("PRLOCK.RENEW b t:b PX 5"), 0);
        assert_eq!(conn.int("PRLOCK.RELEASE c t:c"), 0);
        conn.claim("d");
        conn.granted("PRLOCK.CLAIM e PX 60000 STEAL");
        conn.granted("PRLOCK.CLAIM f PX 60000 STEALIF 5");
        conn.granted("PRLOCK.CLAIM held PX 60000 STEAL");
        conn.ok(cmd("SET s x"));
        conn.granted("PRLOCK.CLAIM s PX 60000 STEAL");
        assert_eq!(conn.list(), ["d", "e", "f", "held", "s"]);
        conn.ok(("FLUSHALL",));
        conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 1));
    }
    assert_lives(&server);
}
