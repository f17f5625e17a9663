//! Replicas hold the same locks, however they came to them. CASES 19, 41, 44, 51.

use crate::support::{Conn, PATIENCE, Server, Value, cmd, int, lock_info, wait_for_offset_equal, wait_until};

/// Changes of every kind in two databases.
fn busy(server: &Server, tag: &str) {
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let mut run = |line: &str| {
            conn.ok(cmd(&line.replace('@', tag)));
        };
        for line in [
            "PRLOCK.CLAIM @a PX 600000 TOKEN t HOLDER h",
            "PRLOCK.CLAIM @b PX 600000 TOKEN t HOLDER gone",
            "PRLOCK.CLAIM @c PX 600000 TOKEN t LINGER 500000",
            "PRLOCK.CLAIM @d PX 600000",
            "PRLOCK.CLAIM @e PX 600000 TOKEN t",
            "PRLOCK.CLAIM @f PX 600000 TOKEN t",
            "PRLOCK.CLAIM @a PX 500000 TOKEN t HOLDER h2",
            "PRLOCK.RENEW @c t PX 700000",
            "PRLOCK.CLAIM @d PX 600000 TOKEN u STEAL",
            "PRLOCK.REVOKE gone",
            "PRLOCK.RELEASE @e t",
            "RENAME @f @g",
            "PERSIST @g",
            "PEXPIRE @c 800000",
            "SET @s token PX 600000",
            "PRLOCK.RENEW @s token PX 700000",
        ] {
            run(line);
        }
    }
}

#[track_caller]
fn assert_same(primary: &Server, replica: &Server) {
    wait_for_offset_equal(primary, replica);
    assert_eq!(replica.lock_states(), primary.lock_states());
    assert_eq!(replica.digest(), primary.digest());
    replica.assert_locks_agree();
    assert_eq!(replica.conn().gauge("held"), primary.conn().gauge("held"));
    for db in [0, 3] {
        let (mut here, mut there) = (primary.conn(), replica.conn());
        here.select(db);
        there.select(db);
        assert_eq!(there.list(), here.list());
    }
    assert_eq!(replica.conn().gauge("last_fence"), primary.conn().gauge("last_fence"));
}

#[test]
fn a_replica_is_the_same_after_a_full_and_a_partial_synchronisation() {
    let primary = Server::builder().config("repl-backlog-size", "4mb").start();
    busy(&primary, "x");
    let replica = primary.replica();
    assert_same(&primary, &replica);
    busy(&primary, "y");
    primary.conn().ok(("SWAPDB", 0, 3));
    busy(&primary, "z");
    assert_same(&primary, &replica);

    // The link breaks, the primary goes on, and the replica takes up the stream where it was.
    let partial = primary.info_number("sync_partial_ok");
    primary.conn().ok(("CLIENT", "KILL", "TYPE", "replica"));
    busy(&primary, "w");
    primary.conn().ok(("FLUSHDB",));
    busy(&primary, "v");
    replica.wait_in_sync_with(&primary);
    assert_same(&primary, &replica);
    assert_eq!(primary.info_number("sync_partial_ok"), partial + 1);
    assert_eq!(primary.info_number("sync_full"), 1);
}

/// CASES 19: what arrives late has lapsed at its moment all the same.
#[test]
fn a_stream_that_comes_late_prolongs_nothing() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut deadlines = Vec::new();
    replica.sigstop();
    for db in [0, 3] {
        let mut conn = primary.conn();
        conn.select(db);
        conn.claim_px("short", 100);
        conn.claim_px("long", 60_000);
        conn.ok(cmd("PRLOCK.RENEW long t:long PX 50000"));
        deadlines.push(int(&conn.ok(("PEXPIRETIME", "long"))));
        let at_ms = int(&conn.ok(("PEXPIRETIME", "short")));
        conn.wait_past(at_ms.max(deadlines[0] - 50_000 + 300));
    }
    replica.sigcont();
    wait_for_offset_equal(&primary, &replica);
    for (db, deadline) in [0, 3].into_iter().zip(deadlines) {
        let mut there = replica.conn();
        there.select(db);
        assert_eq!(there.list(), ["long"]);
        assert_eq!(int(&there.ok(("PEXPIRETIME", "long"))), deadline);
    }
}

/// The replica's own AOF, a replica of the replica, and a restart of each.
#[test]
fn a_replicas_file_and_its_own_replica_are_the_same() {
    let primary = Server::start();
    let middle = primary.replica_with(|plan| plan.aof());
    let last = middle.replica();
    busy(&primary, "x");
    assert_same(&primary, &middle);
    wait_for_offset_equal(&middle, &last);
    assert_same(&primary, &last);

    let states = primary.lock_states();
    middle.conn().ok(("DEBUG", "LOADAOF"));
    assert_eq!(middle.lock_states(), states);
    middle.assert_locks_agree();
    // From its file alone, with nobody to ask.
    primary.stop();
    middle.restart();
    assert_eq!(middle.lock_states(), states);
    middle.assert_locks_agree();
    middle.conn().ok(("REPLICAOF", "NO", "ONE"));
    assert_eq!(int(&middle.conn().ok(("PRLOCK.RENEW", "xa", "t", "PX", 60_000))), 1);
}

/// CASES 44.
#[test]
fn a_replica_that_swaps_its_data_sets_has_no_ghosts() {
    let primary = Server::start();
    let settings = ["on-empty-db", "swapdb", "disabled"];
    for setting in settings {
        primary.conn().ok(("FLUSHALL",));
        busy(&primary, "x");
        let replica = primary.replica_with(|plan| plan.config("repl-diskless-load", setting));
        assert_same(&primary, &replica);
        for round in 0..2 {
            // Another history, so that the next synchronisation is a full one over data that is there.
            replica.conn().ok(("REPLICAOF", "NO", "ONE"));
            replica.conn().ok(cmd("PRLOCK.CLAIM own PX 600000"));
            replica.conn().ok(cmd("RENAME own mine"));
            busy(&replica, "r");
            busy(&primary, if round == 0 { "y" } else { "z" });
            let full = primary.info_number("sync_full");
            replica.conn().ok(("REPLICAOF", "127.0.0.1", primary.port()));
            wait_until("the link to be up", PATIENCE, || {
                let mut conn = replica.conn();
                // LIST during the load is an answer or LOADING, never a crash.
                let _ = conn.call(("PRLOCK.LIST",));
                (primary.info_number("sync_full") > full && replica.find_info_field("master_link_status")? == "up")
                    .then_some(())
            });
            assert_same(&primary, &replica);
        }
    }
}

/// CASES 51: a read-only replica refuses and shows; no replica deletes by itself what it only shows.
#[test]
fn a_replica_shows_what_lives_and_deletes_nothing() {
    let primary = Server::start();
    for (db, read_only, follows) in [(0, "yes", "at start"), (3, "yes", ""), (0, "no", "at start"), (3, "no", "")] {
        let replica = if follows == "at start" {
            primary.replica_with(|plan| plan.config("replica-read-only", read_only))
        } else {
            let server = Server::builder().config("replica-read-only", read_only).start();
            server.conn().ok(("REPLICAOF", "127.0.0.1", primary.port()));
            server.wait_in_sync_with(&primary);
            server
        };
        let mut conn = primary.conn();
        conn.select(db);
        // The primary stands still, so that its deletion does not come.
        conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
        conn.claim_px("short", 300);
        conn.claim_px("renamed", 300);
        conn.ok(("RENAME", "renamed", "another"));
        // Not asked of the key itself: a look that comes late would delete it.
        let lapsed_ms = conn.time_ms() + 300;
        conn.claim("long");
        wait_for_offset_equal(&primary, &replica);
        let mut there = replica.conn();
        there.select(db);
        let size = there.ok(("DBSIZE",));
        there.wait_past(lapsed_ms);
        assert_eq!(there.list(), ["long"]);
        assert_eq!(lock_info(&mut there, "short"), None);
        assert!(lock_info(&mut there, "long").is_some());
        assert_eq!(there.ok(("DBSIZE",)), size, "they are still there, and only look gone");
        for line in [
            "PRLOCK.CLAIM k PX 1000",
            "PRLOCK.RENEW long t:long PX 1000",
            "PRLOCK.RELEASE long t:long",
            "PRLOCK.REVOKE h",
        ] {
            if read_only == "yes" {
                assert!(there.err(cmd(line)).starts_with("READONLY"), "{line}");
            }
        }
        // The primary's deletion arrives, and then a grant over it.
        assert_eq!(conn.int("EXISTS another"), 0);
        conn.claim("short");
        wait_for_offset_equal(&primary, &replica);
        assert_eq!(there.list(), ["long", "short"]);
        assert_eq!(replica.lock_states(), primary.lock_states());
        replica.assert_locks_agree();
        conn.ok(("FLUSHALL",));
    }
}

/// CASES 51: where writes are allowed, an expired lock counts as free.
#[test]
fn on_a_writable_replica_an_expired_lock_is_free() {
    let primary = Server::start();
    let replica = primary.replica_with(|plan| plan.config("replica-read-only", "no"));
    for db in [0, 3] {
        let mut conn = replica.conn();
        conn.select(db);
        conn.claim_px("k", 20);
        let at_ms = int(&conn.ok(("PEXPIRETIME", "k")));
        conn.wait_past(at_ms);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", "t:k", "PX", 1_000))), 0);
        assert_eq!(conn.int("PRLOCK.RELEASE k t:k"), 0);
        assert_eq!(conn.list(), Vec::<String>::new());
        conn.claim("k");
        assert_eq!(conn.list(), ["k"]);
        assert_eq!(conn.int("PRLOCK.RELEASE k t:k"), 1);
        // One that the primary has made, past its deadline here.
        let mut there = primary.conn();
        there.select(db);
        there.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
        there.claim_px("p", 50);
        let at_ms = int(&there.ok(("PEXPIRETIME", "p")));
        wait_for_offset_equal(&primary, &replica);
        conn.wait_past(at_ms);
        conn.claim("p");
        assert_eq!(conn.list(), ["p"]);
        conn.claim_px("q", 60_000);
        assert_eq!(int(&conn.ok(("PRLOCK.REVOKE", "h"))), 2);
        replica.assert_locks_agree();
    }
}

/// Whoever waits at a replica that took writes, and takes none any more, is told, as at a primary that became a replica.
#[test]
fn whoever_waits_when_a_replica_takes_no_writes_any_more_is_told() {
    let server = Server::start();
    let replica = server.replica();
    let mut conn = replica.conn();
    conn.ok(cmd("CONFIG SET replica-read-only no"));
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN a");
    conn.ok(cmd("SET s a"));
    let mut waiters = ["k", "s"].map(|key| replica.waits(&format!("PRLOCK.CLAIM {key} PX 60000 BLOCK 0")));
    conn.ok(cmd("CONFIG SET replica-read-only yes"));
    for waiter in &mut waiters {
        let error = waiter.reply(PATIENCE).expect_err("an error");
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    replica.wait_nobody_waits();
}

/// At a replica that takes writes, a full synchronisation takes its own locks away, and those who wait for these are
/// served behind it. Who waits for a lock of the primary goes on waiting. Valkey 8.1 was granted that one too, between the
/// emptying and the load, and ended at the key that it was about to load.
#[test]
fn whoever_waits_at_a_writable_replica_is_served_behind_a_full_synchronisation() {
    let primary = Server::start();
    let replica = primary.replica_with(|plan| plan.config("replica-read-only", "no"));
    let (mut there, mut here) = (primary.conn(), replica.conn());
    there.granted("PRLOCK.CLAIM theirs PX 600000 TOKEN a");
    wait_for_offset_equal(&primary, &replica);
    here.granted("PRLOCK.CLAIM own PX 600000 TOKEN a");
    here.ok(cmd("SET string a"));
    let [mut own, mut string, mut theirs] =
        ["own", "string", "theirs"].map(|key| replica.waits(&format!("PRLOCK.CLAIM {key} PX 60000 TOKEN w BLOCK 0")));
    there.ok(cmd("DEBUG CHANGE-REPL-ID"));
    there.ok(cmd("CLIENT KILL TYPE replica"));
    assert_eq!((own.granted().token, string.granted().token), (b"w".to_vec(), b"w".to_vec()));
    wait_until("the link is up", PATIENCE, || (replica.find_info_field("master_link_status")? == "up").then_some(()));
    assert_eq!(here.lock_number("theirs", "waiters"), 1);
    there.ok(cmd("DEL theirs"));
    assert_eq!(theirs.granted().token, b"w");
    replica.assert_locks_agree();
}

/// A replica counts no end of a lock, nor does a rename there that nobody has looked at: not while it is one, and not when it
/// is none any more.
#[test]
fn a_change_of_role_counts_no_deletion() {
    let primary = Server::start();
    let other = Server::start();
    let (mut conn, mut there) = (primary.conn(), other.conn());
    for key in ["a", "b", "c"] {
        there.claim(key);
        there.ok(("DEL", key));
    }
    there.ok(("REPLICAOF", "127.0.0.1", primary.port()));
    other.wait_in_sync_with(&primary);
    for key in ["deleted", "renamed"] {
        conn.claim(key);
    }
    conn.ok(("DEL", "deleted"));
    conn.ok(("RENAME", "renamed", "another"));
    wait_for_offset_equal(&primary, &other);
    assert_eq!((other.stat("deleted"), other.stat("held")), (3, 1));
    there.ok(("REPLICAOF", "NO", "ONE"));
    assert_eq!((other.stat("deleted"), other.stat("held")), (3, 1));
    assert_eq!(there.list(), ["another"]);
    assert_eq!(other.stat("deleted"), 3);
    // Renamed by itself, and then a replica again.
    there.ok(("RENAME", "another", "third"));
    there.ok(("CONFIG", "SET", "replica-serve-stale-data", "yes"));
    there.ok(("REPLICAOF", "127.0.0.1", 1));
    assert_eq!((other.stat("deleted"), other.stat("held")), (3, 1));
    assert_eq!(there.list(), ["third"]);
    there.ok(("REPLICAOF", "NO", "ONE"));
    there.ok(("DEL", "third"));
    assert_eq!((other.stat("deleted"), other.stat("held")), (4, 0));
}

#[test]
fn a_promoted_replica_carries_on() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut fences = Vec::new();
    for db in [0, 3] {
        let mut conn = primary.conn();
        conn.select(db);
        fences.push(conn.claim("k"));
        conn.granted("PRLOCK.CLAIM lingers PX 60000 TOKEN t LINGER 50000");
    }
    wait_for_offset_equal(&primary, &replica);
    let states = primary.lock_states();
    primary.kill9();
    replica.conn().ok(("REPLICAOF", "NO", "ONE"));
    assert_eq!(replica.lock_states(), states);
    for (db, fence) in [0, 3].into_iter().zip(fences) {
        let mut conn = replica.conn();
        conn.select(db);
        assert_eq!(int(&lock_info(&mut conn, "k").expect("the lock")["fence"]), fence);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", "t:k", "PX", 60_000, "FENCE", fence))), 1);
        assert_eq!(conn.ok(cmd("PRLOCK.CLAIM k PX 60000")), Value::Nil);
        assert!(conn.claim("new") > fence);
        assert!(conn.granted("PRLOCK.CLAIM k PX 60000 STEAL").fence > fence);
    }
    replica.assert_locks_agree();
}

/// PITFALLS 3: a lock past its deadline that the server may not delete is not written over by the module itself.
#[test]
fn a_demoted_server_writes_nothing_of_its_own() {
    let primary = Server::start();
    let other = Server::start();
    for db in [0, 3] {
        let mut conn: Conn = other.conn();
        conn.ok(("REPLICAOF", "NO", "ONE"));
        conn.select(db);
        conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
        let mut raw = other.raw();
        raw.call(("SELECT", db)).expect("SELECT");
        raw.call(cmd("PRLOCK.CLAIM lingers PX 60000 TOKEN t LINGER 0")).expect("a grant");
        conn.claim_px("k", 150);
        let mut raw_waiter = other.raw();
        raw_waiter.call(("SELECT", db)).expect("SELECT");
        let mut waiter = other.waiter_on(raw_waiter, cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0"));
        conn.ok(("REPLICAOF", "127.0.0.1", primary.port()));
        assert!(waiter.reply(PATIENCE).is_err());
        raw.close();
        other.wait_in_sync_with(&primary);
        assert_eq!(other.conn().gauge("held"), 0);
        other.assert_locks_agree();
    }
}

/// CASES 60: a grant is answered and lost, since the primary is replaced before it was replicated. Both have been granted:
/// the fence of the second is greater, and the first learns that it holds nothing. WAIT would have told it.
#[test]
fn a_grant_that_did_not_arrive_is_lost_and_its_holder_is_told() {
    let old = Server::start();
    let new = old.replica();
    for db in [0, 3] {
        let mut conn = old.conn();
        conn.select(db);
        conn.claim("arrived");
        assert_eq!(int(&conn.ok(("WAIT", 1, PATIENCE.as_millis() as i64))), 1);
        let mut there = new.conn();
        there.select(db);
        assert!(lock_info(&mut there, "arrived").is_some(), "WAIT has said so");

        // The link is cut while the replica stands still, so that not even the network holds anything for it.
        new.sigstop();
        conn.ok(("CLIENT", "KILL", "TYPE", "replica"));
        let first = conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN a HOLDER A");
        assert_eq!(int(&conn.ok(("WAIT", 1, 100))), 0, "it has not arrived");
        old.kill9();
        new.sigcont();
        there.ok(("REPLICAOF", "NO", "ONE"));
        for line in ["PRLOCK.RENEW k a PX 600000", "PRLOCK.RELEASE k a"] {
            assert_eq!(there.int(line), 0, "{line}");
            assert_eq!(there.int("EXISTS k"), 0, "{line} makes nothing anew");
        }
        let second = there.granted("PRLOCK.CLAIM k PX 600000 TOKEN b HOLDER B");
        assert!(second.fence > first.fence);
        assert_eq!(there.int("PRLOCK.RENEW k a PX 600000"), 0);
        assert_eq!(there.lock_holder("k"), "B");
        assert!(lock_info(&mut there, "arrived").is_some());

        // The lost one comes back as a replica: there is one truth.
        old.restart();
        old.conn().ok(("REPLICAOF", "127.0.0.1", new.port()));
        old.wait_in_sync_with(&new);
        let mut conn = old.conn();
        conn.select(db);
        assert_eq!((conn.lock_number("k", "fence"), conn.lock_holder("k")), (second.fence, "B".to_owned()));
        assert_same(&new, &old);
        // And back for the next database.
        old.conn().ok(("REPLICAOF", "NO", "ONE"));
        there.ok(("REPLICAOF", "127.0.0.1", old.port()));
        new.wait_in_sync_with(&old);
    }
}

/// CASES 60: WAIT tells the truth behind a claim that waited, too, whatever ended the wait: the grant is newer than the command.
#[test]
fn wait_behind_a_claim_that_waited_counts_its_grant() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut conn = primary.conn();
    for (ttl_ms, end) in [(600_000, "PRLOCK.RELEASE k t"), (600_000, "DEL k"), (1_000, "PING")] {
        conn.granted(&format!("PRLOCK.CLAIM k PX {ttl_ms} TOKEN t"));
        let mut waiter = primary.waits("PRLOCK.CLAIM k PX 600000 TOKEN w BLOCK 0");
        wait_for_offset_equal(&primary, &replica);
        replica.sigstop();
        conn.ok(cmd(end));
        waiter.granted();
        assert_eq!(waiter.raw().call(("WAIT", 1, 100)), Ok(Value::Int(0)), "{end}: it has not arrived");
        replica.sigcont();
        assert_eq!(waiter.raw().call(("WAIT", 1, PATIENCE.as_millis() as i64)), Ok(Value::Int(1)), "{end}");
        assert_eq!(replica.conn().lock_number("k", "fence"), conn.lock_number("k", "fence"), "{end}");
        conn.ok(("DEL", "k"));
    }
}
