//! No token in SLOWLOG, MONITOR, the log, LIST, INFO, an event or an error. A token here is a word with `secret` in it.

use crate::support::{Conn, PATIENCE, Raw, Server, cmd, int, server_kind, text, wait_for_offset_equal};

const SECRET: &str = "secret";

/// Everything that a MONITOR has shown up to now.
fn shown(server: &Server, monitor: &mut Raw) -> String {
    let mark = format!("mark-{}", server.info_number("total_commands_processed"));
    server.conn().ok(("ECHO", &mark));
    let shown = monitor.take_through(mark.as_bytes(), PATIENCE);
    String::from_utf8_lossy(&shown).into_owned()
}

fn monitor(server: &Server) -> Raw {
    let mut raw = server.raw();
    raw.call(("MONITOR",)).expect("MONITOR");
    raw
}

/// All that the server keeps of slow and of large commands.
fn slow_log(conn: &mut Conn) -> String {
    let mut text = format!("{:?}", conn.ok(("SLOWLOG", "GET", -1)));
    if server_kind().is_valkey() {
        for kind in ["slow", "large-request", "large-reply"] {
            text += &format!("{:?}", conn.ok(("COMMANDLOG", "GET", -1, kind)));
        }
    }
    text
}

/// A server that keeps every command in its slow log.
fn server() -> Server {
    let mut builder = Server::builder()
        .config("slowlog-log-slower-than", "0")
        .config("slowlog-max-len", "10000")
        .config("latency-tracking", "yes")
        .config("loglevel", "debug")
        .config("notify-keyspace-events", "KEA");
    if server_kind().is_valkey() {
        builder =
            builder.config("commandlog-request-larger-than", "0").config("commandlog-reply-larger-than", "100000");
    }
    builder.start()
}

/// Calls of every kind with a token: granted, refused, and malformed in every way.
fn calls() -> Vec<String> {
    let mut lines: Vec<String> = [
        "PRLOCK.CLAIM k PX 60000 TOKEN secret1",
        "PRLOCK.CLAIM k TOKEN secret1 EX 60 HOLDER h LINGER 5",
        "PRLOCK.CLAIM k PX 60000 TOKEN secret2",
        "PRLOCK.CLAIM k PX 60000 TOKEN secret2 STEAL",
        "PRLOCK.CLAIM k PX 60000 TOKEN secret3 STEALIF 7",
        "PRLOCK.RENEW k secret2 PX 60000",
        "PRLOCK.RENEW k secret1 PX 60000 FENCE 1",
        "PRLOCK.RELEASE k secret1",
        "PRLOCK.RELEASE k secret1 FENCE 1",
        "PRLOCK.RELEASE k secret2",
        "PRLOCK.RELEASE free secret2",
        "PRLOCK.RENEW free secret2 PX 5",
        // On a plain string and on another type.
        "SET s x",
        "PRLOCK.CLAIM s PX 60000 TOKEN secret1",
        "PRLOCK.RENEW s secret1 PX 60000",
        "PRLOCK.RELEASE s secret1",
        "DEL l",
        "LPUSH l 1",
        "PRLOCK.CLAIM l PX 60000 TOKEN secret1",
        "PRLOCK.RENEW l secret1 PX 60000",
        "PRLOCK.RELEASE l secret1",
        // Malformed: the token stands anywhere.
        "PRLOCK.CLAIM k PX 60000 TOKEN secret1 TOKEN secret2",
        "PRLOCK.CLAIM k PX 60000 secret1",
        "PRLOCK.CLAIM k PX 60000 TOKE secret1",
        "PRLOCK.CLAIM k TOKEN secret1",
        "PRLOCK.CLAIM k secret1 PX 60000",
        "PRLOCK.CLAIM k PX secret1",
        "PRLOCK.CLAIM k PX 0 TOKEN secret1",
        "PRLOCK.CLAIM k PX 60000 TOKEN secret1 BLOCK -1",
        "PRLOCK.CLAIM k PX 60000 TOKEN secret1 LINGER x",
        "PRLOCK.CLAIM k PX 60000 HOLDER h TOKEN secret1 STEAL STEAL",
        "PRLOCK.RENEW k secret1 PX 0",
        "PRLOCK.RENEW k secret1 secret2 5",
        "PRLOCK.RENEW k PX 60000 secret1",
        "PRLOCK.RENEW k TOKEN secret1 PX 60000",
        "PRLOCK.RENEW k PX 60000 TOKEN secret1",
        "PRLOCK.RELEASE k secret1 FENCE x",
        "PRLOCK.RELEASE k secret1 secret2",
        "PRLOCK.RELEASE k TOKEN secret1",
        "PRLOCK.RELEASE k FENCE 1 secret1",
        "PRLOCK.APPLY k secret1",
        // Too many or too few arguments.
        "PRLOCK.INFO k secret1",
        "PRLOCK.RENEW k secret1",
        "PRLOCK.APPLY k secret1 secret1",
    ]
    .map(str::to_owned)
    .to_vec();
    lines.push(format!("PRLOCK.CLAIM k PX 60000 TOKEN {SECRET}{}", "x".repeat(600)));
    lines.push(format!("PRLOCK.RELEASE k {SECRET}{}", "x".repeat(600)));
    lines
}

/// SPEC: never in SLOWLOG, MONITOR, the log, an error, LIST or INFO.
#[test]
fn no_token_is_shown_anywhere() {
    let server = server();
    let mut monitor = monitor(&server);
    let mut events = server.subscribe("__key*__:*");
    let mut conn = server.conn();
    let mut names = 0;
    for line in calls() {
        if let Err(error) = conn.call(cmd(&line)) {
            assert!(!error.contains(SECRET), "{line}: {error}");
        }
        assert!(!format!("{:?}{:?}", conn.ok(("PRLOCK.LIST",)), conn.call(("PRLOCK.INFO", "k"))).contains(SECRET));
        let shown = shown(&server, &mut monitor);
        assert!(!shown.contains(SECRET), "{line}: {shown}");
        names += shown.matches("(redacted)").count();
        let kept = slow_log(&mut conn);
        assert!(!kept.contains(SECRET), "{line}: {kept}");
    }
    assert!(names > 30, "the rest of the commands is shown: {names}");
    assert!(!format!("{:?}", events.drain()).contains(SECRET));
    assert!(!server.log().contains(SECRET));
    assert!(!text(&conn.ok(("INFO", "everything"))).contains(SECRET));
    assert!(!format!("{:?}", conn.call(("ACL", "LOG"))).contains(SECRET));
    assert!(!format!("{:?}", conn.ok(("CLIENT", "LIST"))).contains(SECRET));
}

/// The key and the public parts stay readable for whoever looks for the cause of a delay.
#[test]
fn what_is_public_is_still_shown() {
    let server = server();
    let mut monitor = monitor(&server);
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN secret HOLDER worker-7");
    conn.int("PRLOCK.RENEW k secret PX 60000");
    conn.int("PRLOCK.RELEASE k secret");
    let shown = shown(&server, &mut monitor);
    for part in [
        r#""PRLOCK.CLAIM" "k" "PX" "60000" "TOKEN" "(redacted)" "HOLDER" "worker-7""#,
        r#""PRLOCK.RENEW" "k" "(redacted)" "PX" "60000""#,
        r#""PRLOCK.RELEASE" "k" "(redacted)""#,
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

/// In MULTI, and by the calls that a script makes. (What a client passes to EVAL itself is EVAL's argument.)
#[test]
fn no_token_is_shown_from_transactions_and_scripts() {
    let server = server();
    let mut conn = server.conn();
    // The tokens are kept where no monitor has seen them: set before it starts.
    conn.ok(cmd("SADD tokens secret1 secret2"));
    conn.ok(cmd("SLOWLOG RESET"));
    if server_kind().is_valkey() {
        conn.ok(cmd("COMMANDLOG RESET large-request"));
    }
    let mut monitor = monitor(&server);
    for line in calls() {
        conn.ok(("MULTI",));
        let _ = conn.call(cmd(&line));
        let _ = conn.call(("EXEC",));
    }
    // Calls of different lengths after one another, with the token at different places.
    let script = "
        local t = redis.call('SMEMBERS', 'tokens')[1]
        local function try(...) redis.pcall(...) end
        for round = 1, 3 do
            try('PRLOCK.RELEASE', 'k', t)
            try('PRLOCK.CLAIM', 'k', 'HOLDER', 'h', 'LINGER', 5, 'PX', 60000, 'TOKEN', t)
            try('PRLOCK.RENEW', 'k', t, 'PX', 60000)
            try('PRLOCK.CLAIM', 'k', 'PX', 60000, t, t, t, t, t, t, t, t)
            try('PRLOCK.RENEW', 'k', t, t, t)
            try('PING')
            try('PRLOCK.APPLY', 'k', t)
        end
        return redis.call('PRLOCK.RELEASE', 'k', t)";
    assert_eq!(int(&conn.ok(("EVAL", script, 0))), 1);
    let shown = shown(&server, &mut monitor);
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(shown.contains(r#"lua] "PRLOCK.RELEASE" "k" "(redacted)""#), "{shown}");
    assert!(shown.contains(r#"lua] "PING""#), "{shown}");
    let kept = slow_log(&mut conn);
    assert!(!kept.contains(SECRET), "{kept}");
    assert!(!server.log().contains(SECRET));
}

/// A waiter's call is kept by SLOWLOG when its wait ends.
#[test]
fn no_token_is_shown_from_waits() {
    let server = server();
    let mut conn = server.conn();
    let mut monitor = monitor(&server);
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN secret1");
    let mut granted = server.waiter(cmd("PRLOCK.CLAIM k PX 60000 TOKEN secret2 BLOCK 0"));
    let mut unblocked = server.waiter(cmd("PRLOCK.CLAIM k PX 60000 TOKEN secret3 BLOCK 0"));
    conn.ok(("CLIENT", "UNBLOCK", unblocked.id));
    assert_eq!(unblocked.reply(PATIENCE), Ok(redis::Value::Nil));
    conn.int("PRLOCK.RELEASE k secret1");
    assert!(granted.reply(PATIENCE).is_ok());
    let shown = shown(&server, &mut monitor);
    assert!(!shown.contains(SECRET), "{shown}");
    let kept = slow_log(&mut conn);
    assert!(!kept.contains(SECRET), "{kept}");
}

/// On a replica: neither its MONITOR nor its slow log shows what PRLOCK.APPLY carries, nor does its log.
#[test]
fn no_token_is_shown_on_a_replica() {
    let primary = server();
    let replica = primary.replica_with(|builder| {
        builder.config("slowlog-log-slower-than", "0").config("slowlog-max-len", "10000").config("appendonly", "yes")
    });
    let mut monitor = monitor(&replica);
    let mut conn = primary.conn();
    for line in calls() {
        let _ = conn.call(cmd(&line));
    }
    conn.granted("PRLOCK.CLAIM last PX 60000 TOKEN secret9");
    wait_for_offset_equal(&primary, &replica);
    let shown = shown(&replica, &mut monitor);
    assert!(shown.contains(r#""PRLOCK.APPLY" "last" "(redacted)""#), "{shown}");
    assert!(!shown.contains(SECRET), "{shown}");
    let mut conn = replica.conn();
    let kept = slow_log(&mut conn);
    assert!(!kept.contains(SECRET), "{kept}");
    assert!(!replica.log().contains(SECRET));
    // Redaction is for those who look on: the lock itself went over whole.
    replica.conn().ok(cmd("REPLICAOF NO ONE"));
    assert_eq!(conn.int("PRLOCK.RENEW last secret9 PX 60000"), 1);
}

/// SPEC: no client can use the replicated form.
#[test]
fn apply_is_refused_to_clients() {
    let server = server();
    let mut stream = server.replication_stream();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let state = stream.drain_without(crate::support::NOISE)[0][2].clone();
    let dirty = server.dirty();
    let refused = "ERR PRLOCK.APPLY is for replication and the AOF; use PRLOCK.CLAIM";
    for key in ["k", "other"] {
        for bytes in [&state[..], b"", b"\0"] {
            assert_eq!(conn.err(("PRLOCK.APPLY", key, bytes)), refused);
            conn.ok(("MULTI",));
            conn.ok(("PRLOCK.APPLY", key, bytes));
            let reply = format!("{:?}", conn.ok(("EXEC",)));
            assert!(reply.contains("PRLOCK.APPLY is for replication"), "{reply}");
            let script = "return redis.pcall('PRLOCK.APPLY', KEYS[1], ARGV[1])";
            let error = conn.err(("EVAL", script, 1, key, bytes));
            assert!(error.contains("not allowed from script") || error.contains("PRLOCK.APPLY"), "{error}");
        }
    }
    assert_eq!(conn.int("EXISTS other"), 0);
    assert_eq!(server.dirty(), dirty);
    assert_eq!(stream.drain_without(crate::support::NOISE), Vec::<Vec<Vec<u8>>>::new());
    // A replica's own clients are clients too.
    let replica = server.replica();
    let error = replica.conn().err(("PRLOCK.APPLY", "k", &state[..]));
    assert!(error.starts_with("READONLY") || error == refused, "{error}");
    replica.conn().ok(cmd("CONFIG SET replica-read-only no"));
    assert_eq!(replica.conn().err(("PRLOCK.APPLY", "k", &state[..])), refused);
}
