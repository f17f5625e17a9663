//! Commands called by another module: nobody's connection, and nobody's user. CASES 36.

use crate::support::{
    Conn, PATIENCE, Server, Value, Waiter, cmd, compile_c, grant, int, items, server_kind, wait_until,
};

fn server() -> Server {
    let server = Server::start();
    let library = compile_c("caller.c");
    server.conn().ok(("MODULE", "LOAD", library.display().to_string()));
    server
}

/// Every command works, without a crash, a wait or a leak of one reply into another.
#[test]
fn every_command_works_from_another_module() {
    let server = server();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        let fence = grant(&conn.ok(cmd("caller.run PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h"))).expect("a grant").fence;
        assert_eq!(conn.ok(cmd("caller.run PRLOCK.CLAIM k PX 60000 TOKEN u")), Value::Nil);
        assert_eq!(conn.lock_number("k", "fence"), fence);
        assert_eq!(int(&conn.ok(cmd("caller.run PRLOCK.RENEW k t PX 60000"))), 1);
        assert_eq!(items(&conn.ok(cmd("caller.run PRLOCK.INFO k"))).len(), 18);
        assert_eq!(items(&conn.ok(cmd("caller.run PRLOCK.LIST"))).len(), 1);
        assert_eq!(int(&conn.ok(cmd("caller.run PRLOCK.RELEASE k t"))), 1);
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
        assert_eq!(int(&conn.ok(cmd("caller.run PRLOCK.REVOKE h"))), 1);
        assert_eq!(conn.int("DBSIZE"), 0);
        // In a script of a user, the module is still nobody.
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
        let script =
            "return {#redis.call('caller.run', 'PRLOCK.LIST'), redis.call('caller.run', 'PRLOCK.REVOKE', 'h')}";
        assert_eq!(conn.ok(("EVAL", script, 0)), Value::Array(vec![Value::Int(1), Value::Int(1)]));
        assert_eq!(
            conn.err(cmd("caller.run PRLOCK.CLAIM k PX 0")),
            "ERR invalid expire time in 'prlock.claim' command"
        );
        assert!(conn.call(cmd("caller.run PRLOCK.APPLY k x")).is_err());
    }
}

/// A claim that would wait answers at once: the module expects no wait.
#[test]
fn a_claim_from_another_module_does_not_wait() {
    let server = server();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    assert_eq!(conn.ok(cmd("caller.run PRLOCK.CLAIM k PX 60000 BLOCK 0")), Value::Nil);
    conn.ok(("MULTI",));
    conn.ok(cmd("caller.run PRLOCK.CLAIM k PX 60000 BLOCK 0"));
    assert_eq!(conn.ok(("EXEC",)), Value::Array(vec![Value::Nil]));
    assert_eq!(server.blocked_clients(), 0);
    assert_eq!(conn.lock_number("k", "waiters"), 0);
}

/// The same for a module that could wait (`RM_Call` with `K`), which ends the server when it gives up a wait that is not
/// for keys. Redis 7.0 has no such call.
#[test]
fn a_module_that_could_wait_does_not_wait_either() {
    let server = Server::start();
    let library = compile_c("promise.c").display().to_string();
    let mut conn = server.conn();
    if !server_kind().at_least_7_2() {
        assert!(conn.err(("MODULE", "LOAD", library)).starts_with("ERR"));
        return;
    }
    conn.ok(("MODULE", "LOAD", library));
    let fence = grant(&conn.ok(cmd("promise.call PRLOCK.CLAIM k PX 60000 TOKEN t LINGER 0"))).expect("a grant").fence;
    assert_eq!(server.info_number("prlock_linger_bound"), 0);
    for block in ["0", "50"] {
        assert_eq!(conn.ok(cmd(&format!("promise.call PRLOCK.CLAIM k PX 60000 BLOCK {block}"))), Value::Nil);
        assert_eq!(conn.int("promise.abort"), 0, "nothing to give up");
    }
    assert_eq!((server.blocked_clients(), conn.lock_number("k", "waiters")), (0, 0));
    // The module itself does wait: for a list.
    let mut waiter = server.waiter(cmd("promise.call BLPOP list 0"));
    assert_eq!(conn.int("promise.abort"), 1);
    assert_eq!(waiter.reply(PATIENCE), Err("ERR given up".into()));
    assert_eq!(conn.int(&format!("PRLOCK.RELEASE k t FENCE {fence}")), 1);
}

/// What another module's call changes is replicated as any change is. A linger has no connection to hang on.
#[test]
fn changes_from_another_module_are_replicated() {
    let server = server();
    let mut witness = server.witness();
    let mut conn = server.conn();
    conn.ok(cmd("caller.run PRLOCK.CLAIM k PX 60000 TOKEN t LINGER 0"));
    assert_eq!(witness.seen().0, ["PRLOCK.APPLY k"]);
    conn.ok(cmd("caller.run PRLOCK.RELEASE k t"));
    assert_eq!(witness.seen().0, ["DEL k"]);
    conn.ok(cmd("caller.run PRLOCK.RELEASE k t"));
    witness.assert_nothing("a refusal");
}

/// Whatever another module does to a key, who waits for it gets it: by a command, by two in one of its own, and by the
/// functions for keys, which no command tells of.
#[test]
fn a_key_that_another_module_removes_goes_to_the_first_who_waits() {
    let server = server();
    let mut conn = server.conn();
    for held in ["PRLOCK.CLAIM k PX 60000 TOKEN a", "SET k a PX 60000"] {
        for ends in [
            "caller.run DEL k",
            "caller.run PEXPIRE k 0",
            "caller.run EVAL redis.call('del','k');return_redis.call('get','other') 0",
            "caller.run caller.run DEL k",
            "caller.remove xk",
        ] {
            conn.ok(cmd(held));
            let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
            conn.ok(cmd(ends));
            assert_eq!(waiter.granted().token, b"w", "{ends} behind {held}");
            assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1, "{ends} behind {held}");
        }
    }
    server.wait_nobody_waits();
}

/// What another module's command does is one step: nobody is granted a key in the middle of it.
#[test]
fn nobody_is_granted_a_key_within_another_modules_command() {
    let server = server();
    let mut conn = server.conn();
    for held in ["PRLOCK.CLAIM k PX 60000 TOKEN a", "SET k a PX 60000"] {
        conn.ok(cmd(held));
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        assert_eq!(conn.int("caller.empties k"), 0, "{held}");
        assert_eq!(waiter.granted().token, b"w", "{held}");
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1, "{held}");
    }
}

/// docs/operations.md: what no command tells of is found by looking at the awaited keys in turn, so many at a time that one
/// of hundreds waits for moments only.
#[test]
fn a_change_without_a_sign_is_soon_found_among_hundreds_of_queues() {
    const KEYS: usize = 300;
    let server = server();
    let mut conn = server.conn();
    let mut waiters: Vec<Waiter> = (0..KEYS)
        .map(|number| {
            conn.ok(cmd(&format!("SET s{number} t PX 600000")));
            server.background(cmd(&format!("PRLOCK.CLAIM s{number} PX 60000 BLOCK 0")))
        })
        .collect();
    wait_until("all to wait", PATIENCE, || (server.stat("waiters") == KEYS as i64).then_some(()));
    let mut late_ms: Vec<i64> = (0..KEYS)
        .step_by(30)
        .map(|number| {
            let at_ms = conn.time_ms();
            conn.ok(cmd(&format!("caller.remove xs{number}")));
            waiters[number].granted().fence / 1_000 - at_ms
        })
        .collect();
    late_ms.sort_unstable();
    // A round takes 125 ms; the half of them, so that a busy machine's pauses don't count.
    assert!(late_ms[late_ms.len() / 2] < 250, "{late_ms:?}");
}

/// A module that is told of a deletion may delete another lock within it: that one is gone as by any `DEL`, for the gauge,
/// the list, the counters and who waits. Redis 7.0 tells of none.
#[test]
fn another_lock_deleted_within_a_release_is_gone_as_well() {
    let server = Server::start();
    let library = compile_c("remover.c").display().to_string();
    let mut conn = server.conn();
    if !server_kind().at_least_7_2() {
        assert!(conn.err(("MODULE", "LOAD", library)).starts_with("ERR"));
        return;
    }
    conn.ok(("MODULE", "LOAD", library));
    let mut there = server.conn();
    there.select(3);
    for line in ["PRLOCK.RELEASE first t", "PRLOCK.REVOKE h", "DEL first"] {
        let deleted = server.stat("deleted");
        conn.granted("PRLOCK.CLAIM first PX 60000 TOKEN t HOLDER h");
        there.granted("PRLOCK.CLAIM second PX 60000 TOKEN t HOLDER other");
        let mut waiter = server.waits_in(3, "PRLOCK.CLAIM second PX 60000 TOKEN w BLOCK 0");
        assert_eq!(conn.int(line), 1, "{line}");
        assert_eq!(waiter.granted().token, b"w", "{line}");
        assert_eq!((server.stat("held"), there.list()), (1, vec!["second".to_owned()]), "{line}");
        let own = i64::from(line == "DEL first");
        assert_eq!(server.stat("deleted") - deleted, 1 + own, "{line}");
        assert_eq!(there.int("PRLOCK.RELEASE second w"), 1);
        server.assert_locks_agree();
    }
}
