//! A server in trouble is not a lost lock: every refusal of the server's own is its error, and never 0 or null. CASES 22.

use crate::support::{Conn, PATIENCE, Server, Value, cmd, items, text, wait_until};

const WRITES: [&str; 4] =
    ["PRLOCK.CLAIM k PX 60000 TOKEN t", "PRLOCK.RENEW k t PX 60000", "PRLOCK.RELEASE k t", "PRLOCK.REVOKE h"];
const READS: [&str; 2] = ["PRLOCK.INFO k", "PRLOCK.LIST"];

#[track_caller]
fn assert_all(conn: &mut Conn, lines: &[&str], code: &str) {
    for line in lines {
        let error = conn.err(cmd(line));
        assert!(error.starts_with(code), "{line}: {error}");
    }
}

/// SPEC: at maxmemory CLAIM is -OOM; the others work, in MULTI and scripts too.
#[test]
fn out_of_memory() {
    let server = Server::start();
    let mut conn = server.conn();
    let prepare = |conn: &mut Conn| {
        conn.ok(cmd("CONFIG SET maxmemory 0"));
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
        conn.granted("PRLOCK.CLAIM other PX 60000 HOLDER gone");
        conn.ok(cmd("SET s t PX 60000"));
        conn.ok(cmd("CONFIG SET maxmemory 1"));
    };
    let works = [
        "PRLOCK.RENEW k t PX 60000",
        "PRLOCK.RENEW s t PX 60000",
        "PRLOCK.INFO k",
        "PRLOCK.LIST",
        "PRLOCK.RELEASE k t",
        "PRLOCK.RELEASE s t",
        "PRLOCK.REVOKE gone",
    ];
    prepare(&mut conn);
    assert_all(
        &mut conn,
        &["PRLOCK.CLAIM k PX 60000 TOKEN t", "PRLOCK.CLAIM free PX 60000", "PRLOCK.CLAIM k PX 60000 STEAL"],
        "OOM",
    );
    for line in works {
        let reply = conn.ok(cmd(line));
        assert!(reply != redis::Value::Int(0) && reply != redis::Value::Nil, "{line}: {reply:?}");
    }

    // Queued while there was memory: at the limit the server itself queues nothing more, whatever the command.
    prepare(&mut conn);
    conn.ok(cmd("CONFIG SET maxmemory 0"));
    conn.ok(("MULTI",));
    for line in works {
        conn.ok(cmd(line));
    }
    server.conn().ok(cmd("CONFIG SET maxmemory 1"));
    let replies = items(&conn.ok(("EXEC",)));
    assert_eq!(replies.len(), works.len());
    for (line, reply) in works.iter().zip(replies) {
        assert!(!matches!(reply, Value::Int(0) | Value::Nil | Value::ServerError(_)), "{line}: {reply:?}");
    }
    conn.ok(("MULTI",));
    assert!(conn.err(cmd("PRLOCK.CLAIM k PX 1000")).starts_with("OOM"));
    assert!(conn.err(("EXEC",)).starts_with("EXECABORT"));

    prepare(&mut conn);
    // Flags tell the server that the script itself may run at the limit; without them Redis 7 refuses only its writes.
    let script = "#!lua flags=allow-oom
        local function number(reply) return type(reply) == 'number' and reply or -1 end
        return {number(redis.call('PRLOCK.RENEW', 'k', 't', 'PX', 60000)), #redis.call('PRLOCK.INFO', 'k'),
                #redis.call('PRLOCK.LIST'), number(redis.call('PRLOCK.RELEASE', 'k', 't')),
                number(redis.call('PRLOCK.RELEASE', 's', 't')), number(redis.call('PRLOCK.REVOKE', 'gone'))}";
    let numbers: Vec<i64> = redis::Cmd::new().arg(("EVAL", script, 0)).query(&mut conn).expect("EVAL");
    assert_eq!(numbers, [1, 18, 2, 1, 1, 1]);
    // A script of the old kind, as most are.
    prepare(&mut conn);
    let script = "return redis.call('PRLOCK.RENEW', 'k', 't', 'PX', 60000) + redis.call('PRLOCK.RELEASE', 'k', 't')";
    let both: i64 = redis::Cmd::new().arg(("EVAL", script, 0)).query(&mut conn).expect("EVAL");
    assert_eq!(both, 2);
    let script = "return redis.call('PRLOCK.CLAIM', 'k', 'PX', 60000)";
    let error = conn.err(("EVAL", script, 0));
    assert!(error.contains("OOM"), "{error}");
    conn.ok(cmd("CONFIG SET maxmemory 0"));
    assert_eq!(conn.int("EXISTS k"), 0);
}

/// SPEC: on a replica writes are -READONLY, INFO and LIST work. Without a link to the primary, where such a replica is
/// told to serve nothing, the rest is -MASTERDOWN.
#[test]
fn a_replica_and_one_that_lost_its_primary() {
    let primary = Server::start();
    primary.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
    let replica = primary.replica();
    let mut conn = replica.conn();
    assert_all(&mut conn, &WRITES, "READONLY");
    assert_all(
        &mut conn,
        &["PRLOCK.RENEW k wrong PX 1000", "PRLOCK.RELEASE free t", "PRLOCK.CLAIM k PX 1000 BLOCK 0"],
        "READONLY",
    );
    assert_eq!(conn.lock_holder("k"), "h");
    assert_eq!(conn.listed(), ["k"]);
    conn.ok(("MULTI",));
    assert_all(&mut conn, &["PRLOCK.RENEW k t PX 1000"], "READONLY");
    conn.ok(("DISCARD",));
    let error = conn.err(("EVAL", "return redis.call('PRLOCK.RENEW', 'k', 't', 'PX', 1000)", 0));
    assert!(error.contains("READONLY") || error.contains("read only"), "{error}");

    conn.ok(cmd("CONFIG SET replica-serve-stale-data no"));
    primary.kill9();
    wait_until("the link to be down", PATIENCE, || {
        (replica.find_info_field("master_link_status")? == "down").then_some(())
    });
    assert_all(&mut conn, &WRITES, "READONLY");
    assert_all(&mut conn, &READS, "MASTERDOWN");
    conn.ok(cmd("CONFIG SET replica-read-only no"));
    assert_all(&mut conn, &WRITES, "MASTERDOWN");
    assert_all(&mut conn, &READS, "MASTERDOWN");
}

/// A primary that wants more replicas than it has.
#[test]
fn not_enough_replicas() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
    conn.ok(cmd("CONFIG SET min-replicas-to-write 1"));
    assert_all(&mut conn, &WRITES, "NOREPLICAS");
    assert_eq!(conn.lock_holder("k"), "h");
    conn.ok(cmd("CONFIG SET min-replicas-to-write 0"));
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
}

/// A server that can't save and was told to stop writes then.
#[test]
fn a_failed_save() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
    conn.ok(cmd("CONFIG SET save 3600_1"));
    // A folder in the place of the file makes every save fail.
    std::fs::create_dir_all(server.folder().join("dump.rdb").join("in the way")).expect("make a folder");
    conn.ok(("BGSAVE",));
    wait_until("the save to fail", PATIENCE, || (server.info_field("rdb_last_bgsave_status") == "err").then_some(()));
    assert_all(&mut conn, &WRITES, "MISCONF");
    assert_eq!(conn.lock_holder("k"), "h");
    conn.ok(cmd("CONFIG SET stop-writes-on-bgsave-error no"));
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
}

/// What the module does by itself stops where a client's command would be refused: else a primary that was cut off from its
/// replicas, or whose disk takes nothing any more, would go on granting what nobody else learns of. Waits end in time, and
/// whoever still waits is served when the trouble is over.
#[test]
fn nothing_is_granted_where_a_claim_would_be_refused() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("CONFIG SET save 3600_1"));
    let in_the_way = server.folder().join("dump.rdb");
    type Step<'a> = Box<dyn Fn() + 'a>;
    let set = |line: &'static str| -> Step<'_> {
        let server = &server;
        Box::new(move || {
            server.conn().ok(cmd(line));
        })
    };
    let save_in_vain: Step<'_> = Box::new(|| {
        // A folder in the place of the file makes every save fail.
        std::fs::create_dir_all(in_the_way.join("x")).expect("make a folder");
        server.conn().ok(("BGSAVE",));
        wait_until("the save to fail", PATIENCE, || {
            (server.info_field("rdb_last_bgsave_status") == "err").then_some(())
        });
    });
    let troubles = [
        ("NOREPLICAS", set("CONFIG SET min-replicas-to-write 1"), set("CONFIG SET min-replicas-to-write 0")),
        ("MISCONF", save_in_vain, set("CONFIG SET stop-writes-on-bgsave-error no")),
    ];
    for (error, begin, end) in &troubles {
        conn.granted("PRLOCK.CLAIM lapses PX 1500 TOKEN t");
        conn.ok(cmd("SET string t PX 60000"));
        let mut holder = server.raw();
        holder.call(cmd("PRLOCK.CLAIM lingers PX 600000 TOKEN t LINGER 0")).expect("a grant");
        let mut waiters =
            ["lapses", "string"].map(|key| server.waits(&format!("PRLOCK.CLAIM {key} PX 60000 TOKEN w BLOCK 0")));
        let mut impatient = server.waits("PRLOCK.CLAIM lapses PX 60000 BLOCK 2500");
        // Of this change the module gets no sign.
        conn.ok(cmd("PEXPIRE string 1500"));
        let until_ms = conn.int("PEXPIRETIME string");
        begin();
        holder.close();
        let before = server.info_number("prlock_claims_granted");
        conn.wait_past(until_ms + 300);
        assert!(conn.err(cmd("PRLOCK.CLAIM x PX 1000")).starts_with(error));
        assert_eq!(conn.listed(), ["lingers"], "{error}");
        impatient.nulled();
        for waiter in &mut waiters {
            waiter.assert_waiting();
        }
        assert_eq!(server.info_number("prlock_claims_granted"), before, "{error}");
        end();
        for waiter in &mut waiters {
            assert_eq!(waiter.granted().token, b"w");
        }
        wait_until("the linger", PATIENCE, || (conn.listed() == ["lapses", "string"]).then_some(()));
        conn.ok(cmd("DEL lapses string"));
    }
}

/// Nobody waits in silence meanwhile where the node no longer serves the key.
#[test]
fn a_slot_that_leaves_ends_the_wait_also_where_writes_are_refused() {
    // The cluster stays up without the slot: else the server itself may be the first to end the wait (CLUSTERDOWN).
    let plan = Server::builder().config("cluster-enabled", "yes");
    let server = plan.config("cluster-require-full-coverage", "no").start();
    let mut conn = server.conn();
    conn.ok(cmd("CLUSTER ADDSLOTSRANGE 0 16383"));
    wait_until("the cluster is up", PATIENCE, || {
        text(&conn.ok(cmd("CLUSTER INFO"))).contains("cluster_state:ok").then_some(())
    });
    conn.granted("PRLOCK.CLAIM k PX 2000 TOKEN t");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
    let until_ms = conn.int("PEXPIRETIME k");
    conn.ok(cmd("CONFIG SET min-replicas-to-write 1"));
    conn.wait_past(until_ms + 100);
    waiter.assert_waiting();
    let slot = conn.int("CLUSTER KEYSLOT k");
    conn.ok(("CLUSTER", "DELSLOTS", slot));
    let error = waiter.failed();
    assert!(error.starts_with("TRYAGAIN"), "{error}");
}

/// A cluster that is down serves no key, and then nobody's connection ends a lock. It does when the cluster is up again.
#[test]
fn a_linger_waits_for_the_cluster() {
    let server = Server::builder().config("cluster-enabled", "yes").start();
    let mut conn = server.conn();
    conn.ok(cmd("CLUSTER ADDSLOTSRANGE 0 16383"));
    let state_is = |state: &str| {
        wait_until("the cluster's state", PATIENCE, || {
            text(&server.conn().ok(cmd("CLUSTER INFO"))).contains(&format!("cluster_state:{state}")).then_some(())
        });
    };
    state_is("ok");
    let mut holder = server.raw();
    holder.call(cmd("PRLOCK.CLAIM k PX 600000 LINGER 0")).expect("a grant");
    holder.call(cmd("PRLOCK.CLAIM l PX 600000 LINGER 60000")).expect("a grant");
    let slot = conn.int("CLUSTER KEYSLOT other");
    conn.ok(("CLUSTER", "DELSLOTS", slot));
    state_is("fail");
    assert!(conn.err(cmd("PRLOCK.INFO k")).starts_with("CLUSTERDOWN"));
    holder.close();
    // Time for many turns of the timer.
    let until_ms = conn.time_ms() + 200;
    conn.wait_past(until_ms);
    assert_eq!(conn.int("DBSIZE"), 2);
    assert_eq!(server.stat("lingered"), 0);
    conn.ok(("CLUSTER", "ADDSLOTS", slot));
    state_is("ok");
    wait_until("the lock to go", PATIENCE, || (conn.int("EXISTS k") == 0).then_some(()));
    wait_until("the other's deadline to be cut", PATIENCE, || (conn.int("PTTL l") <= 60_000).then_some(()));
    assert_eq!(server.stat("lingered"), 2);
}

/// A server that is still loading.
#[test]
fn loading() {
    let server = Server::builder().config("appendonly", "yes").config("appendfsync", "always").start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t HOLDER h");
    let mut pipe = redis::pipe();
    for number in 0..2_000 {
        pipe.cmd("SET").arg(number).arg(number).ignore();
    }
    pipe.query::<()>(&mut conn).expect("SET");
    conn.ok(("BGREWRITEAOF",));
    wait_until("the rewrite", PATIENCE, || (server.info_number("aof_rewrite_in_progress") == 0).then_some(()));
    let mut raw = server.raw();
    let mut watcher = server.raw();
    // Each key takes its time, so that the load can be caught in the act.
    for line in ["CONFIG SET key-load-delay 500", "CONFIG SET loading-process-events-interval-bytes 1024"] {
        conn.ok(cmd(line));
    }
    raw.send_command(cmd("DEBUG LOADAOF"));
    let mut seen = 0;
    wait_until("the load", PATIENCE, || {
        for line in WRITES.iter().chain(&READS) {
            // The last of these come after the load, and then they succeed; the releases are not among them.
            if line.contains("RELEASE") || line.contains("REVOKE") {
                continue;
            }
            if let Err(error) = watcher.call(cmd(line)) {
                assert!(error.starts_with("LOADING"), "{line}: {error}");
                seen += 1;
            }
        }
        raw.reply_within(std::time::Duration::ZERO)
    })
    .expect("the load's end");
    assert!(seen > 0, "the load was too quick to be seen");
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 1);
}
