//! What else the connection of a waiting client is, and what becomes of it during the wait: client-side tracking, RESET,
//! replies that are not wanted, and a user that changes or goes.

use crate::support::{Conn, PATIENCE, Raw, Server, Value, cmd, grant, int, items, map, text, wait_until};

/// The modes of client-side tracking, for clients that read with [`read`].
const MODES: [&str; 6] = ["", "NOLOOP", "BCAST", "BCAST PREFIX k NOLOOP", "OPTIN", "OPTOUT NOLOOP"];

fn tracker(server: &Server, mode: &str) -> Raw {
    let mut raw = server.raw();
    raw.call(("HELLO", 3)).expect("HELLO");
    raw.call(cmd(&format!("CLIENT TRACKING ON {mode}"))).expect("TRACKING");
    raw
}

/// Reads the key such that the server remembers it in every mode.
fn read(raw: &mut Raw, mode: &str) {
    if mode == "OPTIN" {
        raw.send_command(("CLIENT", "CACHING", "YES"));
        reply_behind_pushes(raw).0.expect("CACHING");
    }
    raw.send_command(("PRLOCK.INFO", "k"));
    reply_behind_pushes(raw).0.expect("INFO");
}

/// The next reply that is no push, and how many invalidations came before it.
#[track_caller]
fn reply_behind_pushes(raw: &mut Raw) -> (Result<Value, String>, usize) {
    for pushes in 0.. {
        match raw.reply(PATIENCE) {
            Ok(Value::Push { .. }) => {}
            reply => return (reply, pushes),
        }
    }
    unreachable!("a test has no end of pushes")
}

/// How many invalidations have come by now.
#[track_caller]
fn invalidations(raw: &mut Raw) -> usize {
    raw.send_command(("PING",));
    let (reply, pushes) = reply_behind_pushes(raw);
    assert_eq!(reply, Ok(Value::SimpleString("PONG".into())));
    pushes
}

/// A wait that begins or ends without a grant tells trackers nothing, and a hand-over tells them once. A waiter that tracks
/// gets its one grant, whatever is pushed to it.
#[test]
fn trackers_wait_and_are_told_of_hand_overs_once() {
    let server = Server::start();
    let mut conn = server.conn();
    for mode in MODES {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut reader = tracker(&server, mode);
        read(&mut reader, mode);
        invalidations(&mut reader);
        conn.refused("PRLOCK.CLAIM k PX 60000 TOKEN late BLOCK 1");
        let mut waiter =
            server.waiter_on(tracker(&server, mode), cmd("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0 LINGER 0"));
        assert_eq!(invalidations(&mut reader), 0, "{mode}: a wait");
        assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
        let (reply, _) = reply_behind_pushes(waiter.raw());
        assert_eq!(grant(&reply.expect("a grant")).expect("a grant").token, b"w", "{mode}");
        assert_eq!(invalidations(&mut reader), 1, "{mode}: a hand-over");
        // It is bound to the connection of the waiter, which is in step.
        read(waiter.raw(), mode);
        invalidations(waiter.raw());
        read(&mut reader, mode);
        waiter.disconnect();
        wait_until("the lock to be free", PATIENCE, || (conn.int("EXISTS k") == 0).then_some(()));
        assert_eq!(invalidations(&mut reader), 1, "{mode}: a linger");
    }
}

/// RESET behind a wait is carried out behind it: it ends neither the wait nor the lock, and what the connection was
/// (protocol, database, name, tracking) it is until then.
#[test]
fn a_reset_behind_a_wait_is_done_behind_it() {
    let server = Server::start();
    let mut conn = server.conn_with(Conn::resp2().set_db(3));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut raw = tracker(&server, "BCAST");
    raw.call(("SELECT", 3)).expect("SELECT");
    raw.call(("CLIENT", "SETNAME", "worker")).expect("SETNAME");
    let mut waiter = server.waiter_on(raw, cmd("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0 LINGER 0"));
    waiter.raw().send_command(("RESET",));
    waiter.raw().send_command(cmd("PRLOCK.CLAIM k PX 60000 TOKEN x HOLDER db-0"));
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    let (reply, _) = reply_behind_pushes(waiter.raw());
    assert_eq!(grant(&reply.expect("a grant")).expect("a grant").token, b"w");
    let (reset, _) = reply_behind_pushes(waiter.raw());
    assert_eq!(reset, Ok(Value::SimpleString("RESET".into())));
    let other = waiter.reply(PATIENCE).expect("a reply");
    assert_eq!(grant(&other).expect("a grant").token, b"x", "the key of database 0 is another");
    assert_eq!(conn.lock_holder("k"), "worker");
    // It is still the same connection, and LINGER hangs on that.
    assert_eq!(server.info_number("prlock_linger_bound"), 1);
    waiter.disconnect();
    wait_until("the lock to be free", PATIENCE, || (conn.int("EXISTS k") == 0).then_some(()));
    assert_eq!(server.conn().listed(), ["k"]);
}

/// RESET of a client in the middle of a transaction and of a watch: nothing of it is done, and the lock is not touched.
#[test]
fn a_reset_drops_a_transaction_and_no_lock() {
    let server = Server::start();
    let mut raw = server.raw();
    raw.call(cmd("PRLOCK.CLAIM k PX 60000 TOKEN a LINGER 0")).expect("a grant");
    for line in ["WATCH k", "MULTI", "PRLOCK.RELEASE k a", "PRLOCK.CLAIM l PX 60000 BLOCK 0", "RESET"] {
        raw.call(cmd(line)).expect("OK");
    }
    let mut conn = server.conn();
    assert_eq!(conn.listed(), ["k"]);
    assert_eq!(int(&raw.call(cmd("PRLOCK.RELEASE k a")).expect("1")), 1);
    assert_eq!(server.info_number("prlock_linger_bound"), 0);
}

/// A claim whose reply is skipped waits and is granted like any other. Whether its reply comes is the server's own matter,
/// and as for a waiting BLPOP.
#[test]
fn a_wait_whose_reply_is_skipped_is_as_blpops() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut skipped = |wait: &str, wake: &str| {
        let mut raw = server.raw();
        raw.send_command(cmd("CLIENT REPLY SKIP"));
        raw.send_command(cmd(wait));
        wait_until("the wait", PATIENCE, || (server.blocked_clients() == 1).then_some(()));
        assert_eq!(conn.int(wake), 1);
        raw.send_command(("PING", "end"));
        let end = Ok(Value::BulkString(b"end".to_vec()));
        let mut replies = 0;
        while raw.reply(PATIENCE) != end {
            replies += 1;
        }
        replies
    };
    let due = skipped("BLPOP list 0", "LPUSH list item");
    assert_eq!(skipped("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0", "PRLOCK.RELEASE k a"), due);
    assert_eq!(conn.int("PRLOCK.RENEW k w PX 60000"), 1);
}

/// A user that is deleted loses its connections, and its waits with them. One that may claim no more gets no lock; see `permissions.rs`.
#[test]
fn a_waiters_user_may_change_or_go() {
    let server = Server::start();
    let mut conn = server.conn();
    let wait = |token: &str| {
        server.conn().ok(cmd("ACL SETUSER waiter reset on >pw +prlock.claim +client +ping ~k"));
        let mut raw = server.raw();
        raw.call(("AUTH", "waiter", "pw")).expect("AUTH");
        server.waiter_on(raw, cmd(&format!("PRLOCK.CLAIM k PX 60000 TOKEN {token} BLOCK 0")))
    };
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut gone = wait("gone");
    conn.ok(cmd("ACL DELUSER waiter"));
    gone.raw().wait_closed(PATIENCE);
    server.wait_nobody_waits();
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    assert_eq!(conn.int("EXISTS k"), 0);

    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut narrow = wait("narrow");
    conn.ok(cmd("ACL SETUSER waiter resetkeys -prlock.claim"));
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    assert!(narrow.failed().starts_with("NOPERM"));
    let refusal = narrow.raw().call(cmd("PRLOCK.CLAIM k PX 60000 TOKEN narrow"));
    assert!(refusal.expect_err("a refusal").starts_with("NOPERM"));
    assert_eq!(conn.int("EXISTS k"), 0);
}

/// What an ACL refuses is in its log by command or key, and never with a token.
#[test]
fn the_acl_log_names_no_token() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("ACL SETUSER narrow reset on >pw +@all -prlock.renew -@dangerous ~mine"));
    let mut narrow = server.conn_with(Conn::resp2().set_username("narrow").set_password("pw"));
    let logged = [
        ("PRLOCK.CLAIM theirs PX 60000 TOKEN secret HOLDER h", "theirs"),
        ("PRLOCK.RELEASE theirs secret", "theirs"),
        ("PRLOCK.RENEW mine secret PX 1000", "prlock.renew"),
        ("PRLOCK.INFO theirs", "theirs"),
    ];
    for (line, object) in logged {
        assert!(narrow.err(cmd(line)).starts_with("NOPERM"), "{line}");
        let log = items(&conn.ok(cmd("ACL LOG")));
        let entry = map(&log[0]);
        assert_eq!(text(&entry["username"]), "narrow", "{line}");
        assert_eq!(text(&entry["object"]).to_lowercase(), object, "{line}");
        assert!(log.iter().flat_map(|entry| map(entry).into_values()).all(|value| match value {
            Value::BulkString(text) => !text.windows(6).any(|part| part == b"secret"),
            _ => true,
        }));
        conn.ok(cmd("ACL LOG RESET"));
    }
    assert!(grant(&narrow.ok(cmd("PRLOCK.CLAIM mine PX 60000 TOKEN secret"))).is_some());
}
