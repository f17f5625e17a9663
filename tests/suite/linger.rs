//! LINGER: a lock whose connection has closed.

use std::process::{Command, Stdio};

use crate::support::{
    Conn, Dumper, PATIENCE, Raw, Server, Stored, Value, Waiter, cmd, grant, int, wait_for_offset_equal, wait_until,
};

/// Waits until the connection is gone and the server has had two more turns to see to its locks.
fn wait_gone(server: &Server, id: i64) {
    let mut conn = server.conn();
    wait_until("the connection to be gone", PATIENCE, || {
        crate::support::bytes(&conn.ok(("CLIENT", "LIST", "ID", id))).is_empty().then_some(())
    });
    conn.ok(("PING",));
    conn.ok(("PING",));
}

/// A connection that has claimed.
fn holder(server: &Server, line: &str) -> (Raw, i64) {
    let mut raw = server.raw();
    let id = raw.id();
    let reply = raw.call(cmd(line)).expect("a reply");
    grant(&reply).expect("a grant");
    (raw, id)
}

fn close(server: &Server, holder: (Raw, i64)) {
    holder.0.close();
    wait_gone(server, holder.1);
}

fn rest(conn: &mut Conn, key: &str) -> i64 {
    int(&conn.ok(("PTTL", key)))
}

#[track_caller]
fn assert_cut(conn: &mut Conn, key: &str, to_ms: i64) {
    let left = rest(conn, key);
    assert!(left > 0 && left <= to_ms, "{key}: {left} ms");
}

#[track_caller]
fn assert_uncut(conn: &mut Conn, key: &str) {
    let left = rest(conn, key);
    assert!(left > 500_000, "{key}: {left} ms");
}

/// CASES 25: a worker dies by SIGKILL, holding a lock of half an hour.
#[test]
fn the_lock_of_a_killed_process_is_free_soon() {
    let server = Server::start();
    let mut conn = server.conn();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; \
         printf 'PRLOCK.CLAIM k PX 1800000 TOKEN dead HOLDER w LINGER 300\\r\\nPRLOCK.CLAIM l PX 1800000 TOKEN dead HOLDER w\\r\\n' >&3; \
         exec sleep 1000",
        server.port()
    );
    let mut worker = Command::new("bash").arg("-c").arg(script).stdin(Stdio::null()).spawn().expect("a worker");
    wait_until("the worker to hold both", PATIENCE, || (conn.listed().len() == 2).then_some(()));
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN next BLOCK 0");
    assert_eq!(server.stat("linger_bound"), 1);
    worker.kill().expect("SIGKILL");
    worker.wait().expect("the end");
    let died_ms = conn.time_ms();
    let next = waiter.granted();
    let after = next.fence / 1_000 - died_ms;
    assert!(after > 200, "{after} ms after the death");
    assert!(after < 5_000, "{after} ms after the death");
    // Without LINGER the lock is listed, and can be had by its fence.
    assert_eq!(conn.lock_holder("l"), "w");
    let fence = conn.lock_number("l", "fence");
    conn.granted(&format!("PRLOCK.CLAIM l PX 60000 TOKEN next STEALIF {fence}"));
    for line in
        ["PRLOCK.RENEW l dead PX 1000", "PRLOCK.RELEASE l dead", "PRLOCK.RENEW k dead PX 1000", "PRLOCK.RELEASE k dead"]
    {
        assert_eq!(conn.int(line), 0, "{line}");
    }
    assert_eq!(server.stat("lingered"), 1);
}

/// CASES 30: without LINGER a closed connection changes nothing.
#[test]
fn however_a_connection_closes_its_locks_linger() {
    let server = Server::start();
    let mut conn = server.conn();
    for how in ["close", "kill", "quit", "kill self", "protocol error", "unblock"] {
        let (mut raw, id) = holder(&server, "PRLOCK.CLAIM k PX 600000 LINGER 5000");
        raw.call(cmd("PRLOCK.CLAIM zero PX 600000 LINGER 0")).expect("a grant");
        raw.call(cmd("PRLOCK.CLAIM stays PX 600000 TOKEN stays")).expect("a grant");
        assert_eq!(server.stat("linger_bound"), 2);
        match how {
            "close" => raw.close(),
            "kill" => drop(conn.ok(("CLIENT", "KILL", "ID", id))),
            "quit" => drop(raw.call(("QUIT",))),
            "kill self" => raw.send_command(("CLIENT", "KILL", "ID", id, "SKIPME", "no")),
            "protocol error" => raw.send(b"*-5\r\n$$\r\n*1\r\n+x\r\n"),
            _ => {
                // It dies while it waits for another lock.
                conn.granted("PRLOCK.CLAIM other PX 60000");
                let mut waiter = server.waiter_on(raw, cmd("PRLOCK.CLAIM other PX 60000 BLOCK 0"));
                waiter.assert_waiting();
                waiter.disconnect();
            }
        }
        wait_gone(&server, id);
        assert_cut(&mut conn, "k", 5_000);
        assert_eq!(conn.int("EXISTS zero"), 0, "{how}");
        assert_uncut(&mut conn, "stays");
        assert_eq!(conn.int("PRLOCK.RENEW stays stays PX 600000"), 1);
        assert_eq!(server.stat("linger_bound"), 0, "{how}");
        conn.ok(("FLUSHALL",));
    }
}

#[test]
fn a_renewal_or_claim_moves_the_binding_to_its_connection() {
    let server = Server::start();
    let mut conn = server.conn();
    for line in [
        "PRLOCK.RENEW k t PX 600000",
        "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 5000",
        "PRLOCK.CLAIM k PX 600000 TOKEN thief LINGER 5000 STEAL",
    ] {
        let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 5000");
        let mut second = server.raw();
        let second_id = second.id();
        second.call(cmd(line)).expect("a reply");
        close(&server, first);
        assert_uncut(&mut conn, "k");
        assert_eq!(server.stat("linger_bound"), 1);
        close(&server, (second, second_id));
        assert_cut(&mut conn, "k", 5_000);
        conn.ok(("FLUSHALL",));
    }
    // A claim without LINGER lets it go.
    let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 5000");
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
    assert_eq!(conn.lock_number("k", "linger-ms"), -1);
    close(&server, first);
    assert_uncut(&mut conn, "k");
    conn.ok(("FLUSHALL",));
    // A renewal that is refused moves nothing.
    let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 5000");
    assert_eq!(conn.int("PRLOCK.RENEW k wrong PX 600000"), 0);
    close(&server, first);
    assert_cut(&mut conn, "k", 5_000);
}

/// A script has a client of its own, which is no connection: the lock is bound to nobody, rather than to the wrong one.
#[test]
fn a_script_binds_to_nobody() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut first = server.raw();
    let id = first.id();
    let script = "return redis.call('PRLOCK.CLAIM', 'k', 'PX', 600000, 'TOKEN', 't', 'LINGER', 0)";
    first.call(("EVAL", script, 0)).expect("a grant");
    assert_eq!(conn.lock_number("k", "linger-ms"), 0);
    assert_eq!(server.stat("linger_bound"), 0);
    close(&server, (first, id));
    assert_uncut(&mut conn, "k");
    // The next renewal from a connection binds it.
    let mut second = server.raw();
    let id = second.id();
    second.call(cmd("PRLOCK.RENEW k t PX 600000")).expect("a reply");
    assert_eq!(server.stat("linger_bound"), 1);
    // In MULTI it is the connection itself.
    second.call(("MULTI",)).expect("MULTI");
    second.call(cmd("PRLOCK.CLAIM m PX 600000 LINGER 0")).expect("QUEUED");
    second.call(("EXEC",)).expect("EXEC");
    assert_eq!(server.stat("linger_bound"), 2);
    close(&server, (second, id));
    assert_eq!(conn.int("EXISTS k m"), 0);
}

#[test]
fn who_waits_is_served_when_the_holder_dies() {
    let server = Server::start();
    let mut conn = server.conn();
    // A chain: each waiter lingers, and dies in turn.
    let first = holder(&server, "PRLOCK.CLAIM k PX 600000 LINGER 0");
    let mut waiters: Vec<Waiter> =
        (0..5).map(|n| server.waits(&format!("PRLOCK.CLAIM k PX 600000 HOLDER {n} LINGER 0 BLOCK 0"))).collect();
    close(&server, first);
    for (number, mut waiter) in waiters.drain(..).enumerate() {
        waiter.granted();
        assert_eq!(conn.lock_holder("k"), number.to_string());
        assert_eq!(server.stat("linger_bound"), 1);
        waiter.disconnect();
    }
    wait_until("the lock to be free", PATIENCE, || (conn.int("EXISTS k") == 0).then_some(()));
    assert_eq!(server.stat("lingered"), 6);
    // And with a rest to wait for.
    let first = holder(&server, "PRLOCK.CLAIM k PX 600000 LINGER 150");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 600000 BLOCK 0");
    close(&server, first);
    assert_eq!(server.waiters_of("k"), 1);
    waiter.granted();
}

#[test]
fn a_linger_longer_than_the_rest_changes_nothing() {
    let server = Server::start();
    let mut conn = server.conn();
    let first = holder(&server, "PRLOCK.CLAIM k PX 20000 LINGER 9223372036854775807");
    let deadline = conn.int("PEXPIRETIME k");
    let mut witness = server.witness();
    close(&server, first);
    assert_eq!(conn.int("PEXPIRETIME k"), deadline);
    witness.assert_nothing("a linger longer than the rest");
    assert_eq!(server.stat("lingered"), 0);
    // A lock without a deadline gets one.
    let first = holder(&server, "PRLOCK.CLAIM eternal PX 20000 LINGER 5000");
    conn.ok(cmd("PERSIST eternal"));
    close(&server, first);
    assert_cut(&mut conn, "eternal", 5_000);
}

/// RENAME, MOVE and SWAPDB before the close: the lock lingers wherever it is.
#[test]
fn a_lock_that_was_moved_lingers_where_it_is() {
    let server = Server::start();
    for (moves, db, key) in [
        ("RENAME k k2", 0, "k2"),
        ("RENAME k k2;RENAME k2 k3", 0, "k3"),
        ("SET k2 x;RENAME k k2", 0, "k2"),
        ("MOVE k 5", 5, "k"),
        ("SWAPDB 0 5", 5, "k"),
        ("SWAPDB 0 5;SWAPDB 5 6", 6, "k"),
        ("RENAME k k2;SWAPDB 0 5", 5, "k2"),
        ("SWAPDB 0 5;SWAPDB 0 5", 0, "k"),
        ("RENAME k k2;PRLOCK.INFO k2", 0, "k2"),
        ("RENAME k k2;PRLOCK.LIST;RENAME k2 k", 0, "k"),
    ] {
        for linger in [0, 5_000] {
            let mut conn = server.conn();
            let first = holder(&server, &format!("PRLOCK.CLAIM k PX 600000 TOKEN t LINGER {linger}"));
            for line in moves.split(';') {
                conn.ok(cmd(line));
            }
            close(&server, first);
            conn.ok(("SELECT", db));
            if linger == 0 {
                assert_eq!(int(&conn.ok(("EXISTS", key))), 0, "{moves}");
            } else {
                assert_cut(&mut conn, key, 5_000);
            }
            conn.ok(("FLUSHALL",));
            assert_eq!(server.stat("linger_bound"), 0, "{moves}");
        }
    }
}

/// A flush of the database that it has left, before anybody looked for it, takes nothing from it.
#[test]
fn a_lock_that_was_moved_lingers_though_its_old_database_is_flushed() {
    let server = Server::start();
    let mut conn = server.conn();
    for flush in ["FLUSHDB", "FLUSHDB ASYNC"] {
        let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 5000");
        let mut second = server.raw();
        second.call(cmd("PRLOCK.CLAIM stays PX 600000 TOKEN t LINGER 5000")).expect("a grant");
        for line in ["MOVE k 5", flush] {
            conn.ok(cmd(line));
        }
        assert_eq!(server.stat("linger_bound"), 1, "{flush}");
        close(&server, first);
        conn.ok(("SELECT", 5));
        assert_cut(&mut conn, "k", 5_000);
        conn.ok(("FLUSHALL",));
        conn.ok(("SELECT", 0));
    }
}

/// What was restored from a lock's payload beside it is another lock, though it has its fence: the connection's end is the
/// end of the one that it claimed.
#[test]
fn a_restored_twin_takes_no_binding() {
    let server = Server::start();
    let mut conn = server.conn();
    for line in ["PRLOCK.LIST", "PRLOCK.INFO twin", "PRLOCK.RELEASE twin t", "PRLOCK.CLAIM twin PX 60000 STEAL"] {
        let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 0");
        let dump = crate::support::bytes(&conn.ok(cmd("DUMP k")));
        conn.ok(("RESTORE", "twin", 600_000, &dump[..]));
        conn.ok(cmd(line));
        let left = conn.int("EXISTS twin");
        close(&server, first);
        assert_eq!(conn.int("EXISTS k"), 0, "{line}");
        assert_eq!(conn.int("EXISTS twin"), left, "{line}");
        conn.ok(("FLUSHALL",));
    }
}

/// And bound by a renewal of its own, to another connection or the same, it goes with that one, and its original with its.
#[test]
fn a_restored_twin_is_bound_for_itself() {
    let server = Server::start();
    let mut conn = server.conn();
    for by_first in [false, true] {
        let mut first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 0");
        let dump = crate::support::bytes(&conn.ok(cmd("DUMP k")));
        conn.ok(("RESTORE", "twin", 600_000, &dump[..]));
        let renew = "PRLOCK.RENEW twin t PX 600000";
        if by_first {
            assert_eq!(first.0.call(cmd(renew)), Ok(Value::Int(1)));
            assert_eq!(server.stat("linger_bound"), 2);
            close(&server, first);
            assert_eq!(conn.int("EXISTS k twin"), 0);
            continue;
        }
        let mut second = server.raw();
        let id = second.id();
        assert_eq!(second.call(cmd(renew)), Ok(Value::Int(1)));
        assert_eq!(server.stat("linger_bound"), 2);
        close(&server, first);
        assert_eq!((conn.int("EXISTS k"), conn.int("EXISTS twin")), (0, 1));
        close(&server, (second, id));
        assert_eq!(conn.int("EXISTS twin"), 0);
    }
}

/// Nor is the lock that was restored in its own place: like one that is loaded, it is bound by its next renewal.
#[test]
fn a_lock_restored_in_its_place_is_bound_to_nobody() {
    let server = Server::start();
    let mut conn = server.conn();
    for (goes, looks) in [("PING", "PING"), ("DEL k", "PING"), ("PING", "PRLOCK.LIST"), ("DEL k", "PRLOCK.INFO k")] {
        let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 0");
        let dump = crate::support::bytes(&conn.ok(cmd("DUMP k")));
        conn.ok(cmd(goes));
        conn.ok(("RESTORE", "k", 600_000, &dump[..], "REPLACE"));
        conn.ok(cmd(looks));
        assert_eq!(server.stat("linger_bound"), 0, "{goes}, {looks}");
        close(&server, first);
        assert_uncut(&mut conn, "k");
        let mut second = server.raw();
        let id = second.id();
        assert_eq!(second.call(cmd("PRLOCK.RENEW k t PX 600000")), Ok(Value::Int(1)));
        close(&server, (second, id));
        assert_eq!(conn.int("EXISTS k"), 0, "{goes}, {looks}");
    }
}

/// A lock that has been renewed as often as its place in memory can count becomes another one there with its next renewal:
/// the same lock to everybody, bound as the renewal says.
#[test]
fn a_renewal_beyond_what_can_be_counted_moves_the_binding() {
    const COUNTED_MAX: u32 = (1 << 22) - 1;
    let server = Server::start();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    let now_ms = conn.time_ms();
    let stored = Stored {
        claimed_at_ms: now_ms,
        renewed_at_ms: now_ms,
        renewals: COUNTED_MAX - 1,
        linger_ms: 0,
        ..Stored::new(now_ms as u64 * 1_000)
    };
    conn.ok(("RESTORE", "k", 600_000, dumper.sealed(&dumper.object(0, &stored.bytes()))));
    let renew = "PRLOCK.RENEW k token PX 600000";
    let mut first = server.raw();
    let id = first.id();
    assert_eq!(first.call(cmd(renew)), Ok(Value::Int(1)));
    assert_eq!(conn.lock_number("k", "renewals"), i64::from(COUNTED_MAX));
    assert_eq!(server.stat("linger_bound"), 1);
    // By a script, which binds it to nobody.
    let script = "return redis.call('PRLOCK.RENEW', 'k', 'token', 'PX', 600000)";
    assert_eq!(int(&conn.ok(("EVAL", script, 0))), 1);
    assert_eq!(conn.listed(), ["k"]);
    assert_eq!((server.stat("held"), server.stat("linger_bound")), (1, 0));
    close(&server, (first, id));
    assert_uncut(&mut conn, "k");
    assert_eq!(conn.lock_number("k", "renewals"), i64::from(COUNTED_MAX) + 1);
    let mut second = server.raw();
    let id = second.id();
    assert_eq!(second.call(cmd(renew)), Ok(Value::Int(1)));
    close(&server, (second, id));
    assert_eq!(conn.int("EXISTS k"), 0);
}

/// A lock that is gone, or another's, is left alone when the connection closes.
#[test]
fn what_is_gone_does_not_linger() {
    let server = Server::start();
    let mut conn = server.conn();
    for ends in [
        "PRLOCK.RELEASE k t",
        "DEL k",
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "PEXPIRE k 0",
        "SET k x",
        "PRLOCK.REVOKE h",
        "PRLOCK.CLAIM k PX 600000 TOKEN thief STEAL",
    ] {
        let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t HOLDER h LINGER 0");
        conn.ok(cmd(ends));
        // The name is taken by somebody else, or was stolen.
        let _ = conn.ok(cmd("PRLOCK.CLAIM k PX 600000 TOKEN other"));
        assert_eq!(server.stat("linger_bound"), 0, "{ends}");
        let before = conn.ok(cmd("DUMP k"));
        close(&server, first);
        assert_eq!(conn.ok(cmd("DUMP k")), before, "{ends}");
        conn.ok(("FLUSHALL",));
    }
    assert_eq!(server.stat("lingered"), 0);
}

/// The binding is not persisted: after a restart the lock keeps its deadline, and the next RENEW binds it again.
#[test]
fn a_restart_forgets_the_binding_and_a_renewal_brings_it_back() {
    let server = Server::builder().aof().start();
    let first = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 60000");
    server.restart();
    drop(first);
    let mut conn = server.conn();
    assert_uncut(&mut conn, "k");
    assert_eq!((server.stat("linger_bound"), conn.lock_number("k", "linger-ms")), (0, 60_000));
    let mut second = server.raw();
    let id = second.id();
    second.call(cmd("PRLOCK.RENEW k t PX 600000")).expect("a reply");
    assert_eq!(server.stat("linger_bound"), 1);
    close(&server, (second, id));
    assert_cut(&mut conn, "k", 60_000);
    // What it was cut to lasts over the next restart.
    let deadline = conn.int("PEXPIRETIME k");
    server.restart();
    assert_eq!(server.conn().int("PEXPIRETIME k"), deadline);
}

/// Neither does it outlive a failover and the way back, though the connection does.
#[test]
fn a_failover_forgets_the_binding_and_a_renewal_brings_it_back() {
    let server = Server::start();
    let other = server.replica();
    let (mut first, id) = holder(&server, "PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 0");
    assert_eq!(server.stat("linger_bound"), 1);
    for (from, to) in [(&server, &other), (&other, &server)] {
        wait_for_offset_equal(from, to);
        from.conn().ok(("FAILOVER",));
        wait_until("the roles to be exchanged", PATIENCE, || (to.is_primary() && !from.is_primary()).then_some(()));
        from.wait_in_sync_with(to);
        assert_eq!((from.stat("linger_bound"), to.stat("linger_bound")), (0, 0));
    }
    let mut conn = server.conn();
    let mut second = server.raw();
    let second_id = second.id();
    assert_eq!(first.call(("PING",)), Ok(Value::SimpleString("PONG".into())), "the connection has lived through it");
    close(&server, (first, id));
    assert_uncut(&mut conn, "k");
    second.call(cmd("PRLOCK.RENEW k t PX 600000")).expect("a reply");
    assert_eq!(server.stat("linger_bound"), 1);
    close(&server, (second, second_id));
    assert_eq!(conn.int("EXISTS k"), 0);
}

/// Ten thousand locks of one connection: all are seen to when it closes, and nobody else's closing costs anything.
#[test]
fn ten_thousand_locks_of_one_connection_linger() {
    const LOCKS: usize = 10_000;
    let server = Server::start();
    let mut conn = server.conn();
    // Memory that the server takes once and keeps.
    drop(server.raw());
    for linger in [0, 300_000] {
        let before = server.footprint();
        let mut raw = server.raw();
        let id = raw.id();
        let mut pipeline = redis::pipe();
        for number in 0..LOCKS {
            pipeline.cmd("PRLOCK.CLAIM").arg(format!("k{number}")).arg("PX").arg(600_000).arg("LINGER").arg(linger);
        }
        raw.send(&pipeline.get_packed_pipeline());
        for _ in 0..LOCKS {
            raw.reply(PATIENCE).expect("a grant");
        }
        assert_eq!(server.stat("linger_bound"), LOCKS as i64);
        // Closed connections without locks, while so many are bound.
        for _ in 0..50 {
            drop(server.raw());
        }
        raw.close();
        wait_gone(&server, id);
        wait_until("all locks to be seen to", PATIENCE, || (server.stat("linger_bound") == 0).then_some(()));
        if linger == 0 {
            assert_eq!(conn.int("DBSIZE"), 0);
            server.wait_back_to(&before, 300_000);
        } else {
            for number in [0, 1, LOCKS / 2, LOCKS - 1] {
                assert_cut(&mut conn, &format!("k{number}"), 300_000);
            }
            conn.ok(("FLUSHALL",));
        }
    }
    assert_eq!(server.stat("lingered"), 2 * LOCKS as i64);
}

/// A cut is one change for replicas, AOF and subscribers; LINGER 0 is a deletion.
#[test]
fn a_linger_is_seen_once_from_every_side() {
    let server = Server::start();
    let mut witness = server.witness();
    let first = holder(&server, "PRLOCK.CLAIM k PX 600000 LINGER 5000");
    witness.seen();
    close(&server, first);
    assert_eq!(witness.seen(), (vec!["PRLOCK.APPLY k".into()], vec!["prlock.linger k".into()]));
    let first = holder(&server, "PRLOCK.CLAIM l PX 600000 LINGER 0");
    witness.seen();
    close(&server, first);
    assert_eq!(witness.seen(), (vec!["DEL l".into()], vec!["prlock.linger l".into(), "del l".into()]));
}
