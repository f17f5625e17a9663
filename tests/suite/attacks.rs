//! Servers and neighbours that are set up against the module's expectations.

use crate::support::*;

/// The server's own commands that the module lets the server run or replicates by, each without a name.
fn without_commands(builder: Builder) -> Builder {
    ["DEL", "GET", "CONFIG", "PTTL", "PEXPIREAT"]
        .into_iter()
        .fold(builder, |builder, name| builder.config("rename-command", &format!("{name} \"\"")))
}

/// `rename-command` takes the server's own commands away from the module too. Every change still reaches replicas and the
/// AOF, plain strings are still compared, and a script's caller is still known.
#[test]
fn nothing_needs_a_command_that_can_be_renamed() {
    let server = without_commands(Server::builder()).aof().config("maxmemory-policy", "allkeys-lru").start();
    assert!(server.log().contains("maxmemory-policy lets the server evict locks"), "{}", server.log());
    let replica = server.replica();
    replica.conn().ok(cmd("CONFIG SET notify-keyspace-events Eg"));
    let mut events = replica.subscribe("__keyevent@*__:*");
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM released PX 600000 TOKEN t");
    conn.granted("PRLOCK.CLAIM held PX 600000 TOKEN t");
    conn.ok(cmd("SET renewed t PX 600000"));
    conn.ok(cmd("SET freed t PX 600000"));
    assert_eq!(conn.int("PRLOCK.RELEASE released t"), 1);
    assert_eq!(conn.int("PRLOCK.RENEW renewed t PX 900000"), 1);
    assert_eq!(conn.int("PRLOCK.RENEW renewed another PX 900000"), 0);
    assert_eq!(conn.int("PRLOCK.RELEASE freed another"), 0);
    assert_eq!(conn.int("PRLOCK.RELEASE freed t"), 1);
    assert_eq!(items(&conn.ok(("EVAL", "return redis.call('PRLOCK.LIST')", 0))).len(), 1);

    let deadline = conn.int("PEXPIRETIME renewed");
    let agrees = |server: &Server| {
        let mut conn = server.conn();
        assert_eq!(conn.int("EXISTS released freed"), 0);
        assert_eq!(conn.int("PEXPIRETIME renewed"), deadline);
        assert_eq!(conn.listed(), ["held"]);
    };
    assert_eq!(conn.int("WAIT 1 10000"), 1);
    agrees(&replica);
    let told: Vec<String> = events.drain().iter().map(event_line).collect();
    assert_eq!(told, ["expire renewed", "expire freed", "del released", "expire renewed", "del freed"]);
    server.kill9();
    server.restart();
    agrees(&server);
}

/// The same in Cluster mode, where the module asks the server whose a key is before it gives it to a waiter.
#[test]
fn waiters_of_a_cluster_are_served_where_commands_are_renamed() {
    let server = without_commands(Server::builder()).config("cluster-enabled", "yes").start();
    let mut conn = server.conn();
    conn.ok(cmd("CLUSTER ADDSLOTSRANGE 0 16383"));
    wait_until("the cluster is up", PATIENCE, || {
        text(&conn.ok(cmd("CLUSTER INFO"))).contains("cluster_state:ok").then_some(())
    });
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 600000 TOKEN u BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1);
    waiter.granted();
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 600000 TOKEN v BLOCK 0");
    // Also by a command that has no key, and where the key becomes another type.
    conn.ok(cmd("UNLINK k"));
    waiter.granted();
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 600000 TOKEN w BLOCK 0");
    conn.ok(cmd("EVAL redis.call('unlink',KEYS[1]);redis.call('rpush',KEYS[1],'x') 1 k"));
    assert!(waiter.failed().starts_with("WRONGTYPE"));
}

/// A waiter that is killed in the step that grants it the lock never hears of it, so the lock is taken back, also from where
/// the same step has put it meanwhile.
#[test]
fn an_unheard_grant_is_taken_back_from_wherever_the_lock_went() {
    let server = Server::start();
    let mut conn = server.conn();
    let moves: [&[&str]; 5] = [
        &[],
        &["SWAPDB 0 1"],
        &["RENAME k l"],
        &["MOVE k 1"],
        &["RENAME k l", "PRLOCK.LIST", "SWAPDB 0 1", "SELECT 1", "RENAME l m", "SELECT 0"],
    ];
    for lines in moves {
        for kill_is_first in [true, false] {
            conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
            let mut raw = server.raw();
            let kill = format!("CLIENT KILL ID {}", raw.id());
            let mut waiter = server.waiter_on(raw, cmd("PRLOCK.CLAIM k PX 600000 TOKEN u BLOCK 0"));
            conn.ok(("MULTI",));
            conn.ok(cmd("PRLOCK.RELEASE k t"));
            if kill_is_first {
                conn.ok(cmd(&kill));
            }
            for line in lines {
                conn.ok(cmd(line));
            }
            if !kill_is_first {
                conn.ok(cmd(&kill));
            }
            conn.ok(("EXEC",));
            waiter.raw().wait_closed(PATIENCE);
            wait_until("the lock is taken back", PATIENCE, || (server.info_number("prlock_held") == 0).then_some(()));
            server.assert_locks_agree();
        }
    }
}

/// A listener of another module that deletes the key in the middle of a hand-over: the waiter gets it all the same, once.
#[test]
fn a_listener_may_delete_the_key_that_is_handed_on() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(("MODULE", "LOAD", compile_c("listener.c").display().to_string()));
    for round in 0..20 {
        conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 600000 TOKEN u BLOCK 0");
        assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1, "round {round}");
        let fence = waiter.granted().fence;
        assert_eq!(conn.lock_number("k", "fence"), fence);
        server.assert_locks_agree();
        // Nobody waits: the listener finds nothing left to delete.
        assert_eq!(conn.int("PRLOCK.RELEASE k u"), 1);
        assert_eq!(conn.int("EXISTS k"), 0);
    }
}

/// On Valkey 8.1 the event of an expiry in another database than the running command's takes the client there, if a module
/// listens: its next commands would go to the wrong data.
#[test]
fn an_expiry_in_another_database_leaves_every_client_in_its_own() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    for late in ["SET k old PX 5", "PRLOCK.CLAIM k PX 5 LINGER 60000"] {
        for line in ["MOVE k 1", "COPY k k DB 1", "EVAL return{redis.call('move','k',1),redis.call('get','here')} 0"] {
            conn.ok(cmd("MSET k new here 0"));
            conn.ok(cmd("SELECT 1"));
            conn.ok(cmd("SET here 1"));
            conn.ok(cmd(late));
            let at_ms = conn.int("PEXPIRETIME k");
            conn.wait_past(at_ms);
            conn.ok(cmd("SELECT 0"));
            conn.ok(cmd(&line.replace(",redis.call('get','here')", "")));
            assert_eq!(text(&conn.ok(cmd("GET here"))), "0", "after {late} and {line}");
            conn.ok(cmd("FLUSHALL"));
        }
    }
}

/// The same by the module's own look at a key that somebody waits for in another database, behind a command that names it. A
/// client that is blocked by that command must be found where it was: the server ends if it is not.
#[test]
fn a_look_into_another_database_leaves_every_client_in_its_own() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    conn.ok(cmd("SET here 0"));
    for late in ["SET k old PX 40", "PRLOCK.CLAIM k PX 40 TOKEN old"] {
        for line in ["BLPOP k 0", "DEL k"] {
            let mut owner = server.raw();
            owner.send_lines(["SELECT 1", late]);
            (0..2).for_each(|_| drop(owner.reply(PATIENCE).expect("a lock in another database")));
            let mut waiter = server.waits_in(1, "PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
            let mut raw = server.raw();
            // It lapses in the sleep, and the look behind the command is the first to see that.
            raw.send_lines(["DEBUG SLEEP 0.06", line, "GET here"]);
            raw.reply(PATIENCE).expect("a sleep");
            waiter.granted();
            if line.starts_with("BLPOP") {
                conn.ok(cmd("RPUSH k x"));
            }
            raw.reply(PATIENCE).expect("a reply");
            assert_eq!(raw.reply(PATIENCE), Ok(Value::BulkString(b"0".to_vec())), "after {late} and {line}");
            owner.call(cmd("DEL k")).expect("DEL");
        }
    }
}

/// A renamed lock is found by whoever lists first, from whichever database and in a transaction too. (There, Valkey 9 gives
/// the transaction's database as the selected one, whichever the module has selected.)
#[test]
fn a_list_in_a_transaction_finds_what_was_renamed_in_another_database() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut other = server.conn();
    for lines in
        [&["PRLOCK.LIST"][..], &["PRLOCK.REVOKE nobody"], &["SELECT 2", "PRLOCK.LIST", "SELECT 1"], &["FLUSHDB"]]
    {
        for db in [0, 1, 2] {
            conn.granted("PRLOCK.CLAIM a PX 600000 TOKEN t HOLDER h");
            conn.ok(cmd("RENAME a b"));
            other.ok(("SELECT", db));
            other.ok(("MULTI",));
            for line in lines {
                other.ok(cmd(line));
            }
            other.ok(("EXEC",));
            let left: &[&str] = if db == 0 && lines == ["FLUSHDB"] { &[] } else { &["b"] };
            assert_eq!(conn.listed(), left, "{lines:?} in {db}");
            server.assert_locks_agree();
            assert_eq!(conn.int("PRLOCK.REVOKE h"), left.len() as i64, "{lines:?} in {db}");
            assert_eq!(server.stat("held"), 0, "{lines:?} in {db}");
        }
    }
}
