//! Who hears of a change, and how often: keyspace events, WATCH, client tracking, replicas. CASES 41, 49, 50.

use crate::support::{
    Conn, PATIENCE, Raw, Server, Value, cmd, event_line, server_kind, wait_for_offset_equal, wait_until,
};

/// Each change with the commands that reach replicas and AOF, and the events, in their order.
const CHANGES: [(&str, &[&str], &[&str]); 9] = [
    ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", &["PRLOCK.APPLY k"], &["prlock.claim k"]),
    ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", &["PRLOCK.APPLY k"], &["prlock.claim k"]),
    ("PRLOCK.RENEW k t PX 60000", &["PRLOCK.APPLY k"], &["prlock.renew k"]),
    ("PRLOCK.CLAIM k PX 60000 TOKEN u HOLDER h STEAL", &["PRLOCK.APPLY k"], &["prlock.steal k"]),
    ("PRLOCK.RELEASE k u", &["DEL k"], &["prlock.release k", "del k"]),
    ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h STEAL", &["PRLOCK.APPLY k"], &["prlock.claim k"]),
    ("PRLOCK.REVOKE h", &["DEL k"], &["prlock.revoke k", "del k"]),
    ("SET k t PX 60000", &["SET k"], &["set k", "expire k"]),
    ("PRLOCK.CLAIM k PX 60000 TOKEN t STEAL", &["PRLOCK.APPLY k"], &["prlock.steal k"]),
];

/// SPEC: one event for each change, and one atomic unit to replicas and AOF.
#[test]
fn each_change_is_told_once() {
    let server = Server::start();
    let mut witness = server.witness();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        for (line, commands, events) in CHANGES {
            let dirty = server.dirty();
            conn.ok(cmd(line));
            let (seen_commands, mut seen_events) = witness.seen();
            // The class of new keys is not part of `A`.
            seen_events.retain(|event| event != "new k");
            assert_eq!(seen_commands, commands, "{line}");
            assert_eq!(seen_events, events, "{line}");
            assert_eq!(server.dirty(), dirty + 1, "{line}");
        }
        conn.ok(("DEL", "k"));
        witness.seen();
    }
}

/// Several locks freed by one REVOKE are one atomic unit.
#[test]
fn a_revoke_of_many_is_one_unit() {
    let server = Server::start();
    let mut conn = server.conn();
    for key in ["a", "b", "c"] {
        conn.granted(&format!("PRLOCK.CLAIM {key} PX 60000 HOLDER h"));
    }
    let mut witness = server.witness();
    assert_eq!(conn.int("PRLOCK.REVOKE h"), 3);
    let (commands, events) = witness.seen();
    assert_eq!(commands, ["MULTI", "DEL a", "DEL b", "DEL c", "EXEC"]);
    assert_eq!(events, ["prlock.revoke a", "del a", "prlock.revoke b", "del b", "prlock.revoke c", "del c"]);
}

/// CASES 47: in a transaction and in a script the stream has the order of execution.
#[test]
fn a_transaction_is_replicated_in_its_order() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut witness = server.witness();
    let pipe = &mut redis::pipe();
    pipe.atomic().cmd("PRLOCK.CLAIM").arg(&["k", "PX", "1000"]).cmd("DEL").arg("k").cmd("SET").arg(&["x", "1"]);
    pipe.query::<Value>(&mut conn).expect("EXEC");
    assert_eq!(witness.seen().0, ["MULTI", "PRLOCK.APPLY k", "DEL k", "SET x", "EXEC"]);
    let script = "redis.call('PRLOCK.CLAIM', KEYS[1], 'PX', 60000, 'TOKEN', 't')
        redis.call('SET', KEYS[2], 1)
        redis.call('PRLOCK.RENEW', KEYS[1], 't', 'PX', 60000)
        return redis.call('PRLOCK.RELEASE', KEYS[1], 't')";
    conn.ok(("EVAL", script, 2, "k", "x"));
    assert_eq!(witness.seen().0, ["MULTI", "PRLOCK.APPLY k", "SET x", "PRLOCK.APPLY k", "DEL k", "EXEC"]);
}

/// CASES 28 and 49: an expiry, a deletion and a SET over it are told by the server's own events, once.
#[test]
fn what_others_do_is_told_by_their_events() {
    let builder = Server::builder().config("notify-keyspace-events", "KEA");
    let server = builder.start();
    let mut events = server.subscribe("__keyevent@*__:*");
    let mut conn = server.conn();
    let mut seen = |conn: &mut Conn, line: &str| {
        conn.granted("PRLOCK.CLAIM k PX 60000");
        conn.ok(cmd(line));
        let lines: Vec<String> = events.drain().iter().map(event_line).collect();
        conn.ok(("DEL", "k"));
        events.drain();
        lines
    };
    assert_eq!(seen(&mut conn, "DEL k"), ["prlock.claim k", "del k"]);
    assert_eq!(seen(&mut conn, "SET k x"), ["prlock.claim k", "set k"]);
    // A deadline in the past is a deletion to Redis, and an expiry to Valkey.
    let end = if server_kind().is_valkey() { "expired k" } else { "del k" };
    assert_eq!(seen(&mut conn, "EXPIRE k 0"), ["prlock.claim k", end]);
    assert_eq!(seen(&mut conn, "EXPIRE k 100"), ["prlock.claim k", "expire k"]);
    conn.granted("PRLOCK.CLAIM k PX 1");
    let told: Vec<String> = (0..2).map(|_| event_line(&events.next(PATIENCE))).collect();
    assert_eq!(told, ["prlock.claim k", "expired k"]);
}

/// SPEC: the events are of the module class, `d`, and of no other; the generic `del` is of class `g`.
#[test]
fn the_events_have_their_class() {
    let server = Server::start();
    let mut events = server.subscribe("__key*__:*");
    let mut conn = server.conn();
    let mut lines = |conn: &mut Conn, classes: &str| {
        conn.ok(("CONFIG", "SET", "notify-keyspace-events", classes));
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
        conn.int("PRLOCK.RELEASE k t");
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        events
            .drain()
            .iter()
            .map(|event| format!("{} {}", lossy(&event.channel), lossy(&event.message)))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&mut conn, "Kd"), ["__keyspace@0__:k prlock.claim", "__keyspace@0__:k prlock.release"]);
    assert_eq!(lines(&mut conn, "Ed"), ["__keyevent@0__:prlock.claim k", "__keyevent@0__:prlock.release k"]);
    assert_eq!(lines(&mut conn, "Eg"), ["__keyevent@0__:del k"]);
    assert_eq!(lines(&mut conn, "Ex$"), [""; 0]);
    assert_eq!(lines(&mut conn, ""), [""; 0]);
}

/// A closed connection: `prlock.linger`, and the end of the key by `del` or `expired`.
#[test]
fn a_linger_is_told() {
    let server = Server::start();
    let mut witness = server.witness();
    for (linger_ms, commands, events) in [
        (0, ["DEL k"].as_slice(), ["prlock.linger k", "del k"].as_slice()),
        (50_000, &["PRLOCK.APPLY k"], &["prlock.linger k"]),
    ] {
        let mut holder = server.raw();
        holder.call(cmd(&format!("PRLOCK.CLAIM k PX 60000 LINGER {linger_ms}"))).expect("a grant");
        witness.seen();
        holder.close();
        wait_until("the linger", PATIENCE, || {
            (server.info_number("prlock_linger_bound") == 0 && server.info_number("prlock_lingered") > 0).then_some(())
        });
        let mut seen = witness.seen();
        wait_until("its event", PATIENCE, || {
            let more = witness.seen();
            seen.0.extend(more.0);
            seen.1.extend(more.1);
            (!seen.1.is_empty()).then_some(())
        });
        assert_eq!((seen.0, seen.1), (strings(commands), strings(events)));
        server.conn().ok(("DEL", "k"));
        server.conn().ok(("CONFIG", "RESETSTAT"));
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What another client does that changes the lock `k` of token t, and what it does that does not.
const TOUCHES: [&str; 8] = [
    "PRLOCK.CLAIM k PX 60000 TOKEN t",
    "PRLOCK.CLAIM k PX 60000 TOKEN u STEAL",
    "PRLOCK.RENEW k t PX 60000",
    "PRLOCK.RELEASE k t",
    "PRLOCK.REVOKE h",
    "DEL k",
    "SET k x",
    "EXPIRE k 0",
];
const REFUSALS: [&str; 9] = [
    "PRLOCK.CLAIM k PX 60000",
    "PRLOCK.CLAIM k PX 60000 STEALIF 1",
    "PRLOCK.CLAIM k PX 0",
    "PRLOCK.RENEW k u PX 60000",
    "PRLOCK.RENEW k t PX 60000 FENCE 1",
    "PRLOCK.RELEASE k u",
    "PRLOCK.REVOKE other",
    "PRLOCK.INFO k",
    "PRLOCK.LIST",
];

/// SPEC and CASES 50: WATCH.
#[test]
fn watch_hears_changes_and_no_refusals() {
    let server = Server::start();
    for db in [0, 3] {
        let mut other = server.conn_with(Conn::resp2().set_db(db));
        let mut watcher = server.conn_with(Conn::resp2().set_db(db));
        let mut exec_after = |other: &mut Conn, line: &str| {
            watcher.ok(("WATCH", "k"));
            // An error is a refusal too.
            let _ = other.call(cmd(line));
            watcher.ok(("MULTI",));
            watcher.ok(("PING",));
            watcher.ok(("EXEC",))
        };
        for line in TOUCHES {
            other.ok(("DEL", "k"));
            other.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
            assert_eq!(exec_after(&mut other, line), Value::Nil, "{line}");
        }
        other.ok(("DEL", "k"));
        assert_eq!(exec_after(&mut other, "PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h"), Value::Nil);
        for line in REFUSALS {
            assert_ne!(exec_after(&mut other, line), Value::Nil, "{line}");
        }
        for prepare in ["SET k s", "LPUSH k 1"] {
            other.ok(("DEL", "k"));
            other.ok(cmd(prepare));
            for line in REFUSALS {
                assert_ne!(exec_after(&mut other, line), Value::Nil, "{line} after {prepare}");
            }
        }
        other.ok(cmd("SET k t PX 60000"));
        assert_eq!(exec_after(&mut other, "PRLOCK.RENEW k t PX 60000"), Value::Nil);
        assert_eq!(exec_after(&mut other, "PRLOCK.RELEASE k t"), Value::Nil);
        // On a free key nothing happens at all.
        assert_ne!(exec_after(&mut other, "PRLOCK.RELEASE k t"), Value::Nil);
        assert_ne!(exec_after(&mut other, "PRLOCK.RENEW k t PX 1000"), Value::Nil);
    }
}

/// What has been pushed to a tracking connection up to now.
fn pushes(raw: &mut Raw) -> Vec<Vec<u8>> {
    raw.send(b"PING\r\n");
    let mut pushes = Vec::new();
    loop {
        let reply = raw.reply_bytes(PATIENCE);
        if reply == b"+PONG\r\n" {
            return pushes;
        }
        pushes.push(reply);
    }
}

/// SPEC and CASES 50: a tracking client gets one invalidation for a change and none for a refusal, as a push of RESP3.
#[test]
fn tracking_hears_changes_once_and_no_refusals() {
    let server = Server::start();
    let invalidation = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n".to_vec();
    for mode in ["", " BCAST"] {
        let mut other = server.conn();
        let mut tracker = server.raw();
        tracker.call(("HELLO", 3)).expect("HELLO");
        tracker.call(cmd(&format!("CLIENT TRACKING ON{mode}"))).expect("TRACKING");
        for line in TOUCHES {
            other.ok(("DEL", "k"));
            other.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
            pushes(&mut tracker);
            tracker.call(("PRLOCK.INFO", "k")).expect("INFO");
            other.ok(cmd(line));
            assert_eq!(pushes(&mut tracker), std::slice::from_ref(&invalidation), "{line}{mode}");
        }
        // A null is worth remembering too.
        other.ok(("DEL", "k"));
        pushes(&mut tracker);
        tracker.call(("PRLOCK.INFO", "k")).expect("INFO");
        other.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
        assert_eq!(pushes(&mut tracker), std::slice::from_ref(&invalidation), "{mode}");
        tracker.call(("PRLOCK.INFO", "k")).expect("INFO");
        for line in REFUSALS {
            let _ = other.call(cmd(line));
            assert_eq!(pushes(&mut tracker), Vec::<Vec<u8>>::new(), "{line}{mode}");
        }
        other.ok(("DEL", "k"));
    }
}

/// SPEC and docs/operations.md: a subscriber of a replica hears of each change as well, but of the end of a lock by `del`
/// alone, whatever ended it. WATCH and tracking work there too.
#[test]
fn a_replica_tells_it_too() {
    let primary = Server::start();
    let replica = primary.replica();
    replica.conn().ok(("CONFIG", "SET", "notify-keyspace-events", "KEA"));
    let mut events = replica.subscribe("__keyevent@*__:*");
    let mut told = || {
        wait_for_offset_equal(&primary, &replica);
        events.drain().iter().map(event_line).collect::<Vec<_>>()
    };
    for db in [0, 3] {
        let mut conn = primary.conn_with(Conn::resp2().set_db(db));
        let (mut watcher, mut tracker) = (replica.conn_with(Conn::resp2().set_db(db)), replica.raw());
        tracker.call(("HELLO", 3)).expect("HELLO");
        tracker.call(("SELECT", db)).expect("SELECT");
        tracker.call(cmd("CLIENT TRACKING ON")).expect("TRACKING");
        for (line, expected) in [
            ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", "prlock.claim k"),
            ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", "prlock.claim k"),
            ("PRLOCK.RENEW k t PX 60000", "prlock.renew k"),
            ("PRLOCK.CLAIM k PX 60000 TOKEN u HOLDER h STEAL", "prlock.steal k"),
            ("PRLOCK.RELEASE k u", "del k"),
            ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", "prlock.claim k"),
            ("PRLOCK.REVOKE h", "del k"),
        ] {
            watcher.ok(("WATCH", "k"));
            tracker.call(("PRLOCK.INFO", "k")).expect("INFO");
            conn.ok(cmd(line));
            assert_eq!(told(), [expected], "{line}");
            watcher.ok(("MULTI",));
            assert_eq!(watcher.ok(("EXEC",)), Value::Nil, "{line}");
            assert_eq!(pushes(&mut tracker).len(), 1, "{line}");
            assert_ne!(conn.ok(cmd("PRLOCK.CLAIM other PX 60000 TOKEN o")), Value::Nil);
            told();
            assert_eq!(pushes(&mut tracker).len(), 0, "{line}");
        }
    }
    let mut conn = primary.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let mut waiter = primary.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    told();
    conn.int("PRLOCK.RELEASE k t");
    waiter.granted();
    assert_eq!(told(), ["prlock.claim k"]);
    for (linger_ms, expected) in [(50_000, "prlock.linger l"), (0, "del l")] {
        let mut holder = primary.raw();
        holder.call(cmd(&format!("PRLOCK.CLAIM l PX 60000 TOKEN t STEAL LINGER {linger_ms}"))).expect("a grant");
        told();
        let lingered = primary.stat("lingered");
        holder.close();
        wait_until("the linger", PATIENCE, || (primary.stat("lingered") > lingered).then_some(()));
        assert_eq!(told(), [expected]);
    }
    conn.granted("PRLOCK.CLAIM e PX 1");
    wait_until("the end", PATIENCE, || (conn.int("EXISTS e") == 0).then_some(()));
    assert_eq!(told(), ["prlock.claim e", "del e"]);
}
