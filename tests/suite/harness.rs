//! The harness itself, on servers without the module.

use std::time::Duration;

use crate::support::{
    NOISE, PATIENCE, Server, Value, bytes, int, map, seeded_rng, text, wait_for_offset_equal, wait_until,
};

fn plain() -> Server {
    Server::builder().without_module().start()
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn words(command: &[Vec<u8>]) -> Vec<String> {
    command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn a_server_serves_and_ends_with_its_folder() {
    let server = plain();
    assert_eq!(server.conn().ok(("PING",)), Value::SimpleString("PONG".into()));
    assert_eq!(server.info_number("process_id"), i64::from(server.pid()));
    assert!(server.info_number("used_memory") > 0);
    let folder = server.folder().to_owned();
    assert!(folder.join("server.log").exists());
    drop(server);
    assert!(!folder.exists());
}

#[test]
fn many_servers_live_side_by_side() {
    let servers: Vec<Server> = (0..4).map(|_| plain()).collect();
    for (number, server) in servers.iter().enumerate() {
        server.conn().ok(("SET", "number", number));
    }
    for (number, server) in servers.iter().enumerate() {
        assert_eq!(server.conn().ok(("GET", "number")), bulk(&number.to_string()));
    }
}

#[test]
fn errors_are_the_wire_text() {
    let server = plain();
    let mut conn = server.conn();
    assert!(conn.err(("GET",)).starts_with("ERR wrong number of arguments"));
    conn.ok(("LPUSH", "list", "item"));
    assert_eq!(conn.err(("GET", "list")), "WRONGTYPE Operation against a key holding the wrong kind of value");
}

#[test]
fn bytes_come_back_unchanged() {
    let server = plain();
    let key: &[u8] = b"\0\r\n\xff%s";
    let mut conn = server.conn();
    conn.ok(("SET", key, key));
    assert_eq!(bytes(&conn.ok(("GET", key))), key);

    let mut raw = server.raw();
    raw.send(b"*2\r\n$3\r\nGET\r\n$6\r\n\0\r\n\xff%s\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(raw.reply_bytes(PATIENCE), b"$6\r\n\0\r\n\xff%s\r\n");
    assert_eq!(raw.reply_bytes(PATIENCE), b"+PONG\r\n");
    raw.assert_silent();
}

#[test]
fn maps_look_the_same_in_both_protocols() {
    let server = plain();
    server.conn().ok(("HSET", "hash", "a", "1", "b", "2"));
    let flat = server.conn().ok(("HGETALL", "hash"));
    let real = server.conn3().ok(("HGETALL", "hash"));
    assert_ne!(flat, real);
    assert_eq!(map(&flat), map(&real));
    assert_eq!(text(&map(&real)["b"]), "2");
}

#[test]
fn restart_keeps_port_and_data() {
    let server = Server::builder().without_module().aof().start();
    server.conn().ok(("SET", "key", "kept"));
    let (port, pid) = (server.port(), server.pid());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.conn().ok(("GET", "key")), bulk("kept"));
}

#[test]
fn kill9_ends_it_at_once_and_restart_revives_it() {
    let server = Server::builder().without_module().aof().start();
    server.conn().ok(("SET", "key", "kept"));
    server.kill9();
    assert!(!server.is_alive());
    server.restart();
    assert_eq!(server.conn().ok(("GET", "key")), bulk("kept"));
}

#[test]
fn restart_can_change_the_settings() {
    let server = plain();
    server.restart_with(|plan| plan.config("maxmemory-policy", "allkeys-lru"));
    let policy = server.conn().ok(("CONFIG", "GET", "maxmemory-policy"));
    assert_eq!(text(&map(&policy)["maxmemory-policy"]), "allkeys-lru");
}

#[test]
fn a_refusal_to_start_comes_with_its_log() {
    let failure =
        Server::builder().without_module().config("no-such-setting", "1").try_start().expect_err("an unknown setting");
    assert!(failure.log.contains("no-such-setting"), "{failure:?}");
}

#[test]
fn a_server_that_wants_a_password_starts_too() {
    let builder = Server::builder().without_module();
    let server = builder.config("requirepass", "secret").start();
    assert!(server.raw().call(("GET", "key")).is_err());
    let settings = crate::support::Conn::resp3().set_password("secret");
    assert_eq!(server.conn_with(settings).ok(("GET", "key")), Value::Nil);
}

#[test]
fn shutdown_by_command_is_no_crash() {
    let server = plain();
    server.raw().send_command(("SHUTDOWN", "NOSAVE"));
    assert!(server.wait_end().success());
}

#[test]
fn a_death_unasked_fails_the_test_and_keeps_its_folder() {
    let server = plain();
    let folder = server.folder().to_owned();
    server.raw().send_command(("SHUTDOWN", "NOSAVE"));
    wait_until("the server to end", PATIENCE, || (!server.is_alive()).then_some(()));
    let failure = std::panic::catch_unwind(|| drop(server)).expect_err("a failure");
    let text = failure.downcast_ref::<String>().expect("a text");
    assert!(text.starts_with("the server has died"), "{text}");
    assert!(folder.join("server.log").exists());
    std::fs::remove_dir_all(folder).expect("remove the folder");
}

#[test]
fn a_crash_unasked_fails_the_test_even_after_a_restart() {
    let server = plain();
    let folder = server.folder().to_owned();
    server.raw().send_command(("DEBUG", "SEGFAULT"));
    server.wait_end();
    server.restart();
    let failure = std::panic::catch_unwind(|| drop(server)).expect_err("a failure");
    let text = failure.downcast_ref::<String>().expect("a text");
    assert!(text.starts_with("the server's log has"), "{text}");
    std::fs::remove_dir_all(folder).expect("remove the folder");
}

#[test]
fn sigstop_holds_the_replies_back() {
    let server = plain();
    server.sigstop();
    let mut raw = server.raw();
    raw.send_command(("PING",));
    assert_eq!(raw.reply_within(Duration::from_millis(50)), None);
    server.sigcont();
    assert_eq!(raw.reply(PATIENCE), Ok(Value::SimpleString("PONG".into())));
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = plain();
    primary.conn().ok(("SET", "before", "1"));
    let replica = primary.replica();
    assert!(!replica.is_primary());
    primary.conn().ok(("SET", "after", "2"));
    wait_for_offset_equal(&primary, &replica);
    let mut conn = replica.conn();
    assert_eq!(conn.ok(("GET", "before")), bulk("1"));
    assert_eq!(conn.ok(("GET", "after")), bulk("2"));
    assert!(conn.err(("SET", "key", "x")).starts_with("READONLY"));
}

#[test]
fn the_stream_shows_each_command_once() {
    for diskless in ["yes", "no"] {
        let builder = Server::builder().without_module();
        let server = builder.config("repl-diskless-sync", diskless).start();
        let mut conn = server.conn();
        conn.ok(("SET", "before", "1"));
        let mut stream = server.replication_stream();
        assert!(stream.rdb.windows(6).any(|part| part == b"before"));
        assert_eq!(stream.drain_without(NOISE), Vec::<Vec<Vec<u8>>>::new());

        conn.ok(("SET", "key", b"\0\xff"));
        conn.ok(("GET", "key"));
        conn.ok(("DEL", "no such key"));
        redis::pipe().atomic().incr("a", 1).incr("b", 1).query::<Value>(&mut conn).expect("MULTI and EXEC");
        let commands = stream.drain_without(NOISE);
        assert_eq!(commands[0], [&b"SET"[..], b"key", b"\0\xff"]);
        let rest: Vec<_> = commands[1..].iter().map(|c| words(c)).collect();
        assert_eq!(rest, [vec!["MULTI"], vec!["INCRBY", "a", "1"], vec!["INCRBY", "b", "1"], vec!["EXEC"]]);

        conn.ok(("SELECT", 3));
        conn.ok(("SET", "elsewhere", "x"));
        let names: Vec<_> = stream.drain_without(&["PING"]).iter().map(|command| words(command)[0].clone()).collect();
        assert_eq!(names, ["SELECT", "SET"]);
        assert_eq!(stream.drain_without(&["PING"]), Vec::<Vec<Vec<u8>>>::new());
    }
}

#[test]
fn a_waiter_gets_its_reply_later() {
    let server = plain();
    let mut first = server.waiter(("BLPOP", "list", 0));
    let mut second = server.waiter(("BLPOP", "list", 0));
    assert_eq!(server.blocked_clients(), 2);
    assert_eq!(first.reply_now(), None);

    server.conn().ok(("RPUSH", "list", "item"));
    let item = Value::Array(vec![bulk("list"), bulk("item")]);
    assert_eq!(first.reply(PATIENCE), Ok(item));
    first.assert_no_more_replies();
    assert!(!first.is_blocked());
    assert!(second.is_blocked());

    let unblocked = server.conn().ok(("CLIENT", "UNBLOCK", second.id, "ERROR"));
    assert_eq!(int(&unblocked), 1);
    let error = second.reply(PATIENCE).expect_err("unblocked");
    assert!(error.starts_with("UNBLOCKED"), "{error}");
}

#[test]
fn a_waiter_can_go_or_be_killed() {
    let server = plain();
    server.waiter(("BLPOP", "list", 0)).disconnect();
    wait_until("the waiter to be gone", PATIENCE, || (server.blocked_clients() == 0).then_some(()));
    let mut killed = server.waiter(("BLPOP", "list", 0));
    server.conn().ok(("CLIENT", "KILL", "ID", killed.id));
    killed.raw().wait_closed(PATIENCE);
}

#[test]
fn a_subscriber_sees_keyspace_events_in_order() {
    let builder = Server::builder().without_module();
    let server = builder.config("notify-keyspace-events", "KEA").start();
    let mut events = server.subscribe("__keyevent@*__:*");
    let mut conn = server.conn();
    conn.ok(("SET", "key", "x", "PX", 60_000));
    conn.ok(("DEL", "key"));
    let channels: Vec<_> =
        events.drain().iter().map(|event| String::from_utf8_lossy(&event.channel).into_owned()).collect();
    assert_eq!(channels, ["__keyevent@0__:set", "__keyevent@0__:expire", "__keyevent@0__:del"]);
    assert_eq!(events.drain(), []);
}

#[test]
fn two_generators_of_a_run_without_seed_differ() {
    if std::env::var_os("PRLOCK_SEED").is_some() {
        return;
    }
    use rand::RngExt;
    let (mut one, mut other) = (seeded_rng(), seeded_rng());
    assert_ne!(one.random::<u128>(), other.random::<u128>());
}
