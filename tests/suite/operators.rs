//! SPEC, What operators see: each thing that happens to a lock moves just the fields of `INFO prlock` that are its own.

use std::collections::BTreeMap;

use crate::support::{PATIENCE, Server, Waiter, cmd, text, wait_until};

/// All fields of `INFO prlock` as they must be, beside the server that has them.
struct Ledger<'a> {
    server: &'a Server,
    expected: BTreeMap<String, i64>,
    last_fence: i64,
}

impl<'a> Ledger<'a> {
    fn of(server: &'a Server) -> Self {
        let mut expected = fields(server);
        let last_fence = expected.remove("last_fence").expect("the last fence");
        Self { server, expected, last_fence }
    }

    /// After what was done, the fields named in `changes` (`held+1 steals+1`) have moved by so much, and no other.
    #[track_caller]
    fn moved(&mut self, what: &str, changes: &str) {
        for change in changes.split_whitespace() {
            let at = change.find(['+', '-']).unwrap_or_else(|| panic!("{change} does not say by how much"));
            let (name, by) = change.split_at(at);
            *self.expected.get_mut(name).unwrap_or_else(|| panic!("no field {name}")) +=
                by.parse::<i64>().expect("a number");
        }
        // What the server does by itself (an expiry, a closed connection) takes its time.
        let mut found = BTreeMap::new();
        let start = std::time::Instant::now();
        while start.elapsed() < PATIENCE {
            found = fields(self.server);
            let last_fence = found.remove("last_fence").expect("the last fence");
            assert!(last_fence >= self.last_fence, "{what}: the last fence went back");
            if found == self.expected {
                assert_eq!(last_fence > self.last_fence, changes.contains("claims_granted+"), "{what}: the last fence");
                self.last_fence = last_fence;
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let differ = |(name, due): (&String, &i64)| {
            (found[name] != *due).then(|| format!("{name} is {}, not {due}", found[name]))
        };
        panic!("{what}: {}", self.expected.iter().filter_map(differ).collect::<Vec<_>>().join(", "));
    }

    /// Runs a line, whatever its reply, and then looks.
    #[track_caller]
    fn after(&mut self, line: &str, changes: &str) {
        // By its own connection, which is gone before anybody looks.
        _ = self.server.conn().call(cmd(line));
        self.moved(line, changes);
    }

    /// A client that waits.
    #[track_caller]
    fn waits(&mut self, line: &str) -> Waiter {
        let waiter = self.server.waits(line);
        self.moved(line, "waiters+1 waits_started+1");
        waiter
    }
}

fn fields(server: &Server) -> BTreeMap<String, i64> {
    let info = text(&server.conn().ok(("INFO", "prlock")));
    let pairs = info.lines().filter_map(|line| line.strip_prefix("prlock_")?.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("an integer"))).collect()
}

#[test]
fn claims_renewals_and_releases_move_their_own_fields() {
    let server = Server::start();
    let mut ledger = Ledger::of(&server);
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", "held+1 claims_granted+1");
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", "claims_repeated+1");
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h STEAL", "claims_repeated+1");
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN u", "claims_refused+1");
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN u STEALIF 1", "claims_refused+1");
    ledger.after("PRLOCK.RENEW k t PX 60000", "renewals+1");
    ledger.after("PRLOCK.RENEW k t PX 60000 FENCE 1", "renewals_refused+1");
    ledger.after("PRLOCK.RENEW k u PX 60000", "renewals_refused+1");
    ledger.after("PRLOCK.RENEW absent u PX 60000", "renewals_refused+1");
    ledger.after("PRLOCK.RELEASE k u", "releases_refused+1");
    ledger.after("PRLOCK.RELEASE k t FENCE 1", "releases_refused+1");
    ledger.after("PRLOCK.RELEASE absent u", "releases_refused+1");
    ledger.after("PRLOCK.RELEASE k t", "held-1 releases+1");
    ledger.after("PRLOCK.RELEASE k t", "releases_refused+1");

    // The steal of a free key steals from nobody.
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN t STEAL", "held+1 claims_granted+1");
    ledger.after("PRLOCK.CLAIM k PX 60000 TOKEN u STEAL", "claims_granted+1 steals+1");
    let fence = server.conn().lock_number("k", "fence");
    ledger.after(&format!("PRLOCK.CLAIM k PX 60000 TOKEN v STEALIF {fence}"), "claims_granted+1 steals+1");

    // Plain strings are others' locks.
    ledger.after("SET plain t", "");
    ledger.after("PRLOCK.CLAIM plain PX 60000", "claims_refused+1");
    ledger.after("PRLOCK.RENEW plain t PX 60000", "renewals+1");
    ledger.after("PRLOCK.RENEW plain u PX 60000", "renewals_refused+1");
    ledger.after("PRLOCK.RELEASE plain u", "releases_refused+1");
    ledger.after("PRLOCK.RELEASE plain t", "releases+1");
    ledger.after("SET plain t", "");
    ledger.after("PRLOCK.CLAIM plain PX 60000 STEAL", "held+1 claims_granted+1 steals+1");
}

/// Looking, and whatever ends in an error, leaves no mark.
#[test]
fn reads_and_errors_move_nothing() {
    let server = Server::start();
    server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
    server.conn().ok(("LPUSH", "list", "item"));
    let mut ledger = Ledger::of(&server);
    for line in [
        "PRLOCK.INFO k",
        "PRLOCK.INFO absent",
        "PRLOCK.LIST",
        "PRLOCK.LIST MATCH * HOLDER h COUNT 1",
        "PRLOCK.REVOKE nobody",
        "PRLOCK.REVOKE ''",
        "PRLOCK.CLAIM k",
        "PRLOCK.CLAIM k PX 0",
        "PRLOCK.CLAIM k PX 1000 BLOCK 1 STEAL",
        "PRLOCK.CLAIM list PX 1000",
        "PRLOCK.CLAIM list PX 1000 BLOCK 0",
        "PRLOCK.RENEW list t PX 1000",
        "PRLOCK.RENEW k t PX x",
        "PRLOCK.RELEASE list t",
        "PRLOCK.RELEASE k ''",
        "PRLOCK.APPLY k x",
        "COPY k l",
        "CONFIG RESETSTAT",
    ] {
        ledger.after(line, "");
    }
}

/// Refused and waited are never one number: not at the beginning of a wait, and not at any end of it.
#[test]
fn each_end_of_a_wait_has_its_own_field() {
    let server = Server::start();
    let mut ledger = Ledger::of(&server);
    ledger.after("PRLOCK.CLAIM k PX 600000 TOKEN t HOLDER h", "held+1 claims_granted+1");

    ledger.waits("PRLOCK.CLAIM k PX 1000 BLOCK 2000").reply(PATIENCE).expect("null");
    ledger.moved("its time is up", "waiters-1 waits_timed_out+1");

    ledger.waits("PRLOCK.CLAIM k PX 1000 BLOCK 0").disconnect();
    ledger.moved("the client leaves", "waiters-1 waits_abandoned+1");

    let killed = ledger.waits("PRLOCK.CLAIM k PX 1000 BLOCK 0");
    server.conn().ok(("CLIENT", "KILL", "ID", killed.id));
    ledger.moved("the client is killed", "waiters-1 waits_abandoned+1");

    for reason in ["TIMEOUT", "ERROR"] {
        let mut unblocked = ledger.waits("PRLOCK.CLAIM k PX 1000 BLOCK 0");
        server.conn().ok(("CLIENT", "UNBLOCK", unblocked.id, reason));
        _ = unblocked.reply(PATIENCE);
        ledger.moved(reason, "waiters-1 waits_abandoned+1");
    }

    let mut first = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN u HOLDER u BLOCK 0");
    let mut second = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN v HOLDER v BLOCK 0");
    let mut third = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN w HOLDER w BLOCK 0");
    ledger.after("PRLOCK.RELEASE k t", "waiters-1 releases+1 claims_granted+1 claims_after_wait+1");
    first.reply(PATIENCE).expect("a grant");
    ledger.after("PRLOCK.REVOKE u", "waiters-1 revoked+1 claims_granted+1 claims_after_wait+1");
    second.reply(PATIENCE).expect("a grant");
    ledger.after("DEL k", "waiters-1 deleted+1 claims_granted+1 claims_after_wait+1");
    third.reply(PATIENCE).expect("a grant");

    // The same token waits: once it has the lock, that is no second grant.
    let mut twin = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN x BLOCK 0");
    let mut other = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN x BLOCK 0");
    ledger.after("PRLOCK.RELEASE k w", "waiters-2 releases+1 claims_granted+1 claims_after_wait+1 claims_repeated+1");
    twin.reply(PATIENCE).expect("a grant");
    other.reply(PATIENCE).expect("the same grant");

    let mut waits = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN y BLOCK 0");
    ledger.after("PEXPIRE k 20", "expired+1 waiters-1 claims_granted+1 claims_after_wait+1");
    waits.reply(PATIENCE).expect("a grant");

    let mut wrong = ledger.waits("PRLOCK.CLAIM k PX 600000 BLOCK 0");
    server.conn().ok(cmd("LPUSH list item"));
    ledger.after("RENAME list k", "held-1 deleted+1 waiters-1 waits_abandoned+1");
    wrong.reply(PATIENCE).expect_err("WRONGTYPE");
}

/// A claim with BLOCK that cannot wait is refused, and is no wait.
#[test]
fn in_multi_a_block_is_a_refusal() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    let mut ledger = Ledger::of(&server);
    conn.ok(("MULTI",));
    conn.ok(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0"));
    conn.ok(("EXEC",));
    ledger.moved("EXEC", "claims_refused+1");
}

/// Each way in which a lock goes without its owner's release.
#[test]
fn each_end_of_a_lock_has_its_own_field() {
    let server = Server::start();
    let mut ledger = Ledger::of(&server);
    let claim = "PRLOCK.CLAIM k PX 600000 TOKEN t HOLDER h";
    let granted = "held+1 claims_granted+1";
    for deletes in ["DEL k", "UNLINK k", "SET k x", "FLUSHDB", "FLUSHALL ASYNC", "FLUSHALL SYNC"] {
        ledger.after(claim, granted);
        ledger.after(deletes, "held-1 deleted+1");
        ledger.after("DEL k", "");
    }
    // No end at all.
    ledger.after(claim, granted);
    for moves in ["RENAME k l", "RENAME l k", "MOVE k 1", "SWAPDB 0 1", "PERSIST k", "PEXPIRE k 600000"] {
        ledger.after(moves, "");
    }
    ledger.after("PRLOCK.REVOKE h", "held-1 revoked+1");

    ledger.after("PRLOCK.CLAIM k PX 10 TOKEN t", "held+1 claims_granted+1 held-1 expired+1");
    // Found past its deadline by a command, with nobody to look after it before.
    ledger.after("DEBUG SET-ACTIVE-EXPIRE 0", "");
    ledger.after("PRLOCK.CLAIM k PX 1 TOKEN t", granted);
    wait_until("the deadline", PATIENCE, || (server.conn().int("PTTL k") < 0).then_some(()));
    ledger.after("PRLOCK.LIST", "held-1 expired+1");
    ledger.after("DEBUG SET-ACTIVE-EXPIRE 1", "");
}

/// LINGER: the binding is a gauge, the cut is counted, and the lock's end is counted as what it is.
#[test]
fn lingering_is_counted_where_it_happens() {
    let server = Server::start();
    let mut ledger = Ledger::of(&server);
    let mut holder = server.raw();
    let bound = "held+1 linger_bound+1 claims_granted+1";
    holder.call(cmd("PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 0")).expect("a grant");
    ledger.moved("bound", bound);
    holder.close();
    ledger.moved("freed at once", "held-1 linger_bound-1 lingered+1");

    let mut holder = server.raw();
    holder.call(cmd("PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 20")).expect("a grant");
    ledger.moved("bound", bound);
    holder.close();
    ledger.moved("cut, and then past its deadline", "held-1 linger_bound-1 lingered+1 expired+1");

    let mut holder = server.raw();
    holder.call(cmd("PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 0")).expect("a grant");
    ledger.moved("bound", bound);
    let mut waiter = ledger.waits("PRLOCK.CLAIM k PX 600000 TOKEN u BLOCK 0");
    holder.close();
    ledger.moved("handed on", "linger_bound-1 lingered+1 waiters-1 claims_granted+1 claims_after_wait+1");
    waiter.reply(PATIENCE).expect("a grant");
}

/// CASES 61: evicted locks are counted, and counted as nothing else.
#[test]
fn evictions_are_counted() {
    let server = Server::builder().config("maxmemory-policy", "allkeys-random").start();
    let mut conn = server.conn();
    for number in 0..200 {
        conn.granted(&format!("PRLOCK.CLAIM lock:{number} PX 600000 TOKEN t"));
    }
    let mut ledger = Ledger::of(&server);
    let limit = server.info_number("used_memory") + 2_000_000;
    conn.ok(("CONFIG", "SET", "maxmemory", limit));
    let mut number = 0;
    wait_until("an eviction of a lock", PATIENCE, || {
        number += 1;
        _ = conn.call(("SET", format!("ballast:{number}"), vec![b'x'; 100_000]));
        (server.info_number("prlock_evicted") >= 5).then_some(())
    });
    conn.ok(("CONFIG", "SET", "maxmemory", 0));
    let evicted = server.info_number("prlock_evicted");
    ledger.moved("evicted", &format!("evicted+{evicted} held-{evicted}"));
    assert_eq!(crate::support::items(&conn.ok(cmd("PRLOCK.LIST"))).len() as i64, 200 - evicted);
}

/// A replica holds the same locks, and counts what its own clients do: nothing. Whoever waited when a primary is demoted
/// has given up.
#[test]
fn a_replica_has_the_gauges_and_not_the_counters() {
    let server = Server::start();
    let replica = server.replica();
    let mut ledger = Ledger::of(&replica);
    let mut conn = server.conn();
    let fence = conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t HOLDER h").fence;
    conn.granted("PRLOCK.CLAIM l PX 600000 TOKEN t HOLDER h LINGER 5000");
    conn.ok(cmd("PRLOCK.RENEW k t PX 600000"));
    conn.refused("PRLOCK.CLAIM k PX 600000");
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN u STEAL");
    conn.ok(cmd("PRLOCK.RELEASE l t"));
    wait_until("the replica to know", PATIENCE, || {
        let seen = fields(&replica);
        (seen["held"] == 1 && seen["last_fence"] > fence).then_some(())
    });
    ledger.last_fence = fields(&replica)["last_fence"];
    ledger.moved("replicated", "held+1");

    conn.ok(cmd("DEL k"));
    ledger.moved("a replicated deletion", "held-1");
    conn.ok(cmd("PRLOCK.CLAIM k PX 10 TOKEN t"));
    wait_until("the expiry", PATIENCE, || (server.info_number("prlock_expired") == 1).then_some(()));
    crate::support::wait_for_offset_equal(&server, &replica);
    ledger.last_fence = fields(&replica)["last_fence"];
    ledger.moved("a replicated expiry", "");
    for flush in ["FLUSHDB", "FLUSHALL ASYNC"] {
        conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
        conn.ok(cmd(flush));
        crate::support::wait_for_offset_equal(&server, &replica);
        ledger.last_fence = fields(&replica)["last_fence"];
        ledger.moved("a replicated flush", "");
    }

    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t");
    let mut waiter = server.waits("PRLOCK.CLAIM k PX 600000 BLOCK 0");
    let mut primary = Ledger::of(&server);
    conn.ok(("REPLICAOF", "127.0.0.1", replica.port()));
    primary.moved("demoted", "waiters-1 waits_abandoned+1");
    waiter.reply(PATIENCE).expect_err("look elsewhere");
}

/// After a restart the gauges are right, and the counters begin anew.
#[test]
fn a_restart_keeps_the_gauges() {
    let server = Server::builder().aof().start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 600000 TOKEN t LINGER 5000");
    conn.granted("PRLOCK.CLAIM l PX 600000 TOKEN t");
    conn.ok(cmd("PRLOCK.RENEW k t PX 600000"));
    conn.refused("PRLOCK.CLAIM k PX 600000");
    // The file repeats these ends, and a rename that looks like one.
    conn.granted("PRLOCK.CLAIM m PX 10 TOKEN t HOLDER h");
    wait_until("the expiry", PATIENCE, || (server.stat("expired") == 1).then_some(()));
    for line in ["PRLOCK.RELEASE m t", "DEL m", "PRLOCK.REVOKE h", "RENAME m n", "SELECT 3", "FLUSHDB"] {
        conn.granted("PRLOCK.CLAIM m PX 600000 TOKEN t HOLDER h");
        conn.ok(cmd(line));
    }
    let fence = conn.granted("PRLOCK.CLAIM l PX 600000 TOKEN t").fence;
    server.restart();
    let seen = fields(&server);
    assert_eq!((seen["held"], seen["last_fence"]), (5, fence));
    let others = seen.iter().filter(|(name, _)| !["held", "last_fence"].contains(&name.as_str()));
    for (name, value) in others {
        assert_eq!(*value, 0, "{name}");
    }
    // Found under its new name it was none, and the next end is counted.
    let mut ledger = Ledger::of(&server);
    ledger.after("PRLOCK.LIST", "");
    ledger.after("DEL n", "held-1 deleted+1");
}
