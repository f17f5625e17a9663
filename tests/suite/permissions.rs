//! What ACLs let a caller do, in each command and in those that name no key. CASES 57.

use crate::support::{Conn, PATIENCE, Server, Value, cmd, int, items, map, pack, server_kind, text, wait_until};

fn user(server: &Server, name: &str, rules: &str) -> Conn {
    let line = format!("ACL SETUSER {name} on >pw {rules}");
    server.conn().ok(cmd(&line));
    server.conn_with(Conn::resp3().set_username(name).set_password("pw"))
}

/// Four locks of one holder under two prefixes.
fn locks(server: &Server) {
    for key in ["a:1", "a:2", "b:1", "b:2"] {
        server.conn().granted(&format!("PRLOCK.CLAIM {key} PX 60000 TOKEN t HOLDER h"));
    }
}

const ALL: &str =
    "+prlock.claim +prlock.renew +prlock.release +prlock.info +prlock.list +prlock.revoke +multi +exec +eval";

/// SPEC: LIST shows only keys that the caller may read; the others are as if they did not exist, COUNT included.
#[test]
fn list_shows_what_the_caller_may_read() {
    let server = Server::start();
    locks(&server);
    for (rules, keys) in [
        ("~a:*", &["a:1", "a:2"][..]),
        ("~*", &["a:1", "a:2", "b:1", "b:2"]),
        ("~?:2", &["a:2", "b:2"]),
        ("%R~b:*", &["b:1", "b:2"]),
        ("%W~b:*", &[]),
        ("%R~a:1 %W~b:*", &["a:1"]),
        ("", &[]),
    ] {
        let mut conn = user(&server, "someone", &format!("reset on >pw {ALL} {rules}"));
        assert_eq!(conn.listed(), keys, "{rules}");
        let mut paged = Vec::new();
        let mut after = String::new();
        loop {
            let page = items(&conn.ok(("PRLOCK.LIST", "COUNT", 1, "AFTER", &after)));
            let Some(lock) = page.first() else { break };
            after = text(&map(lock)["key"]);
            paged.push(after.clone());
        }
        assert_eq!(paged, keys, "{rules}");
        let matched = items(&conn.ok(cmd("PRLOCK.LIST MATCH a:* HOLDER h"))).len();
        assert_eq!(matched, keys.iter().filter(|key| key.starts_with("a:")).count(), "{rules}");
        // In a transaction and in a script it is the same caller.
        conn.ok(("MULTI",));
        conn.ok(("PRLOCK.LIST",));
        assert_eq!(items(&items(&conn.ok(("EXEC",)))[0]).len(), keys.len());
        assert_eq!(int(&conn.ok(("EVAL", "return #redis.call('PRLOCK.LIST')", 0))), keys.len() as i64, "{rules}");
    }
}

/// SPEC: REVOKE frees what the caller may write, and nothing else.
#[test]
fn revoke_frees_what_the_caller_may_write() {
    let server = Server::start();
    for (rules, left) in [
        ("~a:*", &["b:1", "b:2"][..]),
        ("%W~b:*", &["a:1", "a:2"]),
        ("%R~b:*", &["a:1", "a:2", "b:1", "b:2"]),
        ("%R~a:* %W~?:2", &["a:1", "b:1"]),
        ("", &["a:1", "a:2", "b:1", "b:2"]),
        ("~*", &[]),
    ] {
        for way in ["plain", "script", "transaction"] {
            locks(&server);
            let mut conn = user(&server, "someone", &format!("reset on >pw {ALL} {rules}"));
            let freed = match way {
                "plain" => conn.int("PRLOCK.REVOKE h"),
                "script" => int(&conn.ok(("EVAL", "return redis.call('PRLOCK.REVOKE', 'h')", 0))),
                _ => {
                    conn.ok(("MULTI",));
                    conn.ok(("PRLOCK.REVOKE", "h"));
                    int(&items(&conn.ok(("EXEC",)))[0])
                }
            };
            assert_eq!(freed, 4 - left.len() as i64, "{rules} {way}");
            assert_eq!(server.conn().listed(), left, "{rules} {way}");
        }
    }
}

/// Keyed commands: the server checks them by their key specs.
#[test]
fn keyed_commands_need_their_key() {
    let server = Server::start();
    locks(&server);
    let calls = [
        ("PRLOCK.CLAIM ? PX 1000", "rw"),
        ("PRLOCK.CLAIM ? PX 60000 TOKEN t HOLDER h", "rw"),
        ("PRLOCK.RENEW ? t PX 60000", "rw"),
        ("PRLOCK.INFO ?", "r"),
        ("PRLOCK.RELEASE ? t", "rw"),
    ];
    for (rules, allowed) in [("~a:*", "rw"), ("%R~a:*", "r"), ("%W~a:*", "w")] {
        locks(&server);
        let mut conn = user(&server, "someone", &format!("reset on >pw {ALL} {rules}"));
        for (line, needs) in calls {
            let may = needs.chars().all(|need| allowed.contains(need));
            let outcome = conn.call(cmd(&line.replace('?', "a:1")));
            assert_eq!(outcome.is_ok(), may, "{line} {rules}: {outcome:?}");
            let error = conn.err(cmd(&line.replace('?', "b:1")));
            assert!(error.starts_with("NOPERM"), "{line} {rules}: {error}");
        }
    }
    // The internal command is not for anybody.
    let mut admin = server.conn();
    assert!(admin.err(cmd("PRLOCK.APPLY a:1 x")).starts_with("ERR PRLOCK.APPLY"));
}

/// CASES 57: a reader's categories, where the server has them for modules; where not, the commands by their names.
#[test]
fn a_reader_reads_and_does_not_claim() {
    let server = Server::start();
    locks(&server);
    let rules = if server_kind().has_module_acl_categories() { "+@read" } else { "+prlock.info +prlock.list" };
    let mut conn = user(&server, "reader", &format!("reset on >pw ~* {rules}"));
    assert_eq!(conn.listed().len(), 4);
    assert_eq!(conn.lock_holder("a:1"), "h");
    for line in [
        "PRLOCK.CLAIM a:1 PX 1000",
        "PRLOCK.RENEW a:1 t PX 1000",
        "PRLOCK.RELEASE a:1 t",
        "PRLOCK.REVOKE h",
        "PRLOCK.APPLY a:1 x",
    ] {
        assert!(conn.err(cmd(line)).starts_with("NOPERM"), "{line}");
    }
    assert_eq!(server.conn().listed().len(), 4);
}

/// The categories of each command, where the server has them.
#[test]
fn commands_are_in_their_categories() {
    let server = Server::start();
    let mut conn = server.conn();
    if !server_kind().has_module_acl_categories() {
        // Such a server gives modules' commands no category at all, and says so.
        let read: Vec<String> = items(&conn.ok(cmd("ACL CAT read"))).iter().map(text).collect();
        assert!(!read.iter().any(|name| name.to_lowercase().starts_with("prlock")));
        return;
    }
    for (category, names) in [
        ("read", &["info", "list"][..]),
        ("write", &["apply", "claim", "release", "renew", "revoke"]),
        ("fast", &["apply", "info", "release", "renew"]),
        ("slow", &["claim", "list", "revoke"]),
        ("blocking", &["claim"]),
        ("admin", &["apply"]),
        ("dangerous", &["apply"]),
        ("prlock", &["apply", "claim", "info", "list", "release", "renew", "revoke"]),
    ] {
        let mut found: Vec<String> = items(&conn.ok(("ACL", "CAT", category)))
            .iter()
            .filter_map(|name| text(name).to_lowercase().strip_prefix("prlock.").map(str::to_owned))
            .collect();
        found.sort();
        assert_eq!(found, names, "{category}");
    }
    let mut conn = user(&server, "locker", "reset on >pw ~* +@prlock -@dangerous");
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1);
    assert!(conn.err(cmd("PRLOCK.APPLY k x")).starts_with("NOPERM"));
}

/// A user that is deleted while its connection lives is closed by the server; a user without a password is as good.
#[test]
fn the_default_user_may_be_narrow_too() {
    let server = Server::start();
    locks(&server);
    let mut admin = user(&server, "admin", "~* &* +@all");
    let mut conn = server.conn();
    admin.ok(cmd("ACL SETUSER default resetkeys ~a:*"));
    assert_eq!(conn.listed(), ["a:1", "a:2"]);
    assert_eq!(conn.int("PRLOCK.REVOKE h"), 2);
    assert_eq!(admin.listed(), ["b:1", "b:2"]);
}

/// BLPOP, on 7.2 and later: rights are asked for again before a client that waited is served. Whoever has lost them gets
/// NOPERM instead of the lock, and the next has it.
#[test]
fn who_loses_the_right_during_the_wait_does_not_get_the_lock() {
    let server = Server::start();
    let mut conn = server.conn();
    let waits_as = |name: &str, token: &str| {
        let mut raw = server.raw();
        raw.call(("AUTH", name, "pw")).expect("AUTH");
        server.waiter_on(raw, cmd(&format!("PRLOCK.CLAIM k PX 60000 TOKEN {token} BLOCK 0")))
    };
    for loss in ["resetkeys", "resetkeys %R~*", "-@all", "-prlock.claim"] {
        for end in ["PRLOCK.RELEASE k t", "DEL k", "PEXPIRE k 1", "PRLOCK.REVOKE h"] {
            conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
            conn.ok(cmd("ACL SETUSER someone reset on >pw ~* +@all"));
            let (mut loser, mut heir) =
                (waits_as("someone", "u"), server.waits("PRLOCK.CLAIM k PX 60000 TOKEN v BLOCK 0"));
            conn.ok(cmd(&format!("ACL SETUSER someone {loss}")));
            loser.assert_waiting();
            let abandoned = server.stat("waits_abandoned");
            conn.ok(cmd(end));
            assert!(loser.failed().starts_with("NOPERM "), "{loss}, {end}");
            assert_eq!(heir.granted().token, b"v", "{loss}, {end}");
            assert_eq!(server.stat("waits_abandoned"), abandoned + 1);
            // With nobody behind it the lock is free, and not the loser's.
            conn.ok(cmd("ACL SETUSER someone reset on >pw ~* +@all"));
            loser.assert_no_more_replies();
            let mut loser = waits_as("someone", "u");
            conn.ok(cmd(&format!("ACL SETUSER someone {loss}")));
            assert_eq!(conn.int("PRLOCK.RELEASE k v"), 1);
            assert!(loser.failed().starts_with("NOPERM "), "{loss}, {end}");
            assert_eq!(conn.int("EXISTS k"), 0);
        }
    }
}

/// The same for a claim that is sent again while its first sending waits, and for who has the right back in time. A user that
/// is merely switched off keeps its connections, as the server says.
#[test]
fn the_right_counts_at_the_grant() {
    let server = Server::start();
    let mut conn = server.conn();
    let waits_as_someone = || {
        let mut raw = server.raw();
        raw.call(("AUTH", "someone", "pw")).expect("AUTH");
        server.waiter_on(raw, cmd("PRLOCK.CLAIM k PX 60000 TOKEN u BLOCK 0"))
    };
    conn.ok(cmd("ACL SETUSER someone reset on >pw ~* +@all"));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let mut twins = [waits_as_someone(), waits_as_someone()];
    conn.ok(cmd("ACL SETUSER someone resetkeys"));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN u STEAL");
    for twin in &mut twins {
        assert!(twin.failed().starts_with("NOPERM "));
    }
    let mut back = {
        conn.ok(cmd("ACL SETUSER someone ~*"));
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t STEAL");
        waits_as_someone()
    };
    conn.ok(cmd("ACL SETUSER someone resetkeys"));
    conn.ok(cmd("ACL SETUSER someone ~* off"));
    assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1);
    assert_eq!(back.granted().token, b"u");
}

/// A user that is deleted takes its connections along: whoever waits there is granted nothing, not even in the same moment.
#[test]
fn a_deleted_users_waiter_gets_nothing() {
    let server = Server::start();
    let mut conn = server.conn();
    for _ in 0..10 {
        conn.ok(cmd("ACL SETUSER someone reset on >pw ~* +@all"));
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
        let mut raw = server.raw();
        raw.call(("AUTH", "someone", "pw")).expect("AUTH");
        let mut waiter = server.waiter_on(raw, cmd("PRLOCK.CLAIM k PX 60000 TOKEN u BLOCK 0"));
        let mut admin = server.raw();
        admin.send(&[pack(cmd("ACL DELUSER someone")), pack(cmd("PRLOCK.RELEASE k t"))].concat());
        assert_eq!(admin.reply(PATIENCE), Ok(Value::Int(1)));
        assert_eq!(admin.reply(PATIENCE), Ok(Value::Int(1)));
        waiter.raw().wait_closed(PATIENCE);
        server.wait_nobody_waits();
        wait_until("the lock to be free", PATIENCE, || (conn.int("EXISTS k") == 0).then_some(()));
    }
}
