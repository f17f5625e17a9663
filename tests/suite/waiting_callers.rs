//! CASES 36: callers that cannot wait get their answer at once, and just one. Another module's call is in `other_module.rs`.

use crate::support::{PATIENCE, Server, Value, cmd, grant, items};

const CALL: &str = "return redis.call('PRLOCK.CLAIM', 'k', 'PX', 60000, 'TOKEN', 'w', 'BLOCK', 0)";

#[test]
fn a_claim_in_a_transaction_a_script_or_a_function_answers_at_once() {
    let server = Server::start();
    let mut conn = server.conn();
    let library = format!("#!lua name=lib\nredis.register_function('claim', function(keys, args) {CALL} end)");
    conn.ok(("FUNCTION", "LOAD", library));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut raw = server.raw();
    for how in ["multi", "eval", "function", "eval in multi"] {
        let reply = match how {
            "multi" => {
                raw.call(("MULTI",)).expect("MULTI");
                raw.call(cmd("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0")).expect("QUEUED");
                items(&raw.call(("EXEC",)).expect("EXEC"))[0].clone()
            }
            "eval" => raw.call(("EVAL", CALL, 0)).expect("EVAL"),
            "function" => raw.call(("FCALL", "claim", 0)).expect("FCALL"),
            _ => {
                raw.call(("MULTI",)).expect("MULTI");
                raw.call(("EVAL", CALL, 0)).expect("QUEUED");
                items(&raw.call(("EXEC",)).expect("EXEC"))[0].clone()
            }
        };
        assert_eq!(reply, Value::Nil, "{how}");
        raw.assert_silent();
    }
    assert_eq!((server.stat("waits_started"), server.stat("waiters")), (0, 0));
    assert_eq!(server.stat("claims_refused"), 4);
    // Free, it is granted there too.
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    let reply = raw.call(("EVAL", CALL, 0)).expect("EVAL");
    assert_eq!(grant(&reply).expect("a grant").token, b"w");
    // Outside of them the very same connection waits.
    let mut waiter = server.waiter_on(raw, cmd("PRLOCK.CLAIM k PX 60000 TOKEN x BLOCK 0"));
    assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    assert_eq!(waiter.granted().token, b"x");
}

/// The release may stand in a transaction or a script: the waiter has the lock when that is over, and nobody before.
#[test]
fn a_release_in_a_transaction_or_a_script_hands_on() {
    let server = Server::start();
    let mut conn = server.conn();
    for how in ["multi", "eval"] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let second = if how == "multi" {
            conn.ok(("MULTI",));
            conn.ok(cmd("PRLOCK.RELEASE k a"));
            conn.ok(cmd("PRLOCK.CLAIM k PX 60000 TOKEN a"));
            items(&conn.ok(("EXEC",)))[1].clone()
        } else {
            let script = "redis.call('PRLOCK.RELEASE', 'k', 'a') \
                          return redis.call('PRLOCK.CLAIM', 'k', 'PX', 60000, 'TOKEN', 'a')";
            conn.ok(("EVAL", script, 0))
        };
        assert_eq!(second, Value::Nil, "{how}");
        assert_eq!(waiter.granted().token, b"w");
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
    }
}

/// A client that has switched its replies off is served like any other.
#[test]
fn a_client_that_wants_no_replies_is_served() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut raw = server.raw();
    let id = raw.id();
    raw.send_command(("CLIENT", "REPLY", "OFF"));
    raw.send_command(cmd("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0"));
    crate::support::wait_until("the wait", PATIENCE, || (server.stat("waiters") == 1).then_some(()));
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    crate::support::wait_until("the end of it", PATIENCE, || (server.blocked_clients() == 0).then_some(()));
    assert_eq!(conn.int("PRLOCK.RENEW k w PX 60000"), 1);
    conn.ok(("CLIENT", "KILL", "ID", id));
    raw.wait_closed(PATIENCE);
}
