//! The moment somebody begins to need the stream of changes, and the moments before and after it: nothing may be missing
//! from the copy, whenever in a busy server's life it is made (`src/server/stream.rs`).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rand::RngExt;

use crate::support::{PATIENCE, Server, bytes, seeded_rng, wait_until};

/// Claims, renews, steals and releases at random until told to stop, on keys whose deadlines lie far away.
fn churn(server: &Server, stop: &AtomicBool, worker: usize, seed: u64) {
    use rand::SeedableRng;
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    let mut conn = server.conn();
    while !stop.load(Relaxed) {
        let key = format!("k{}", rng.random_range(0..60));
        let token = format!("t{worker}");
        match rng.random_range(0..5) {
            0 | 1 => conn.ok(("PRLOCK.CLAIM", &key, "PX", 600_000, "TOKEN", &token)),
            2 => conn.ok(("PRLOCK.RENEW", &key, &token, "PX", 700_000)),
            3 => conn.ok(("PRLOCK.CLAIM", &key, "PX", 600_000, "TOKEN", &token, "STEAL")),
            _ => conn.ok(("PRLOCK.RELEASE", &key, &token)),
        };
    }
}

/// Runs `f` while three workers change locks.
fn under_churn(server: &Server, seed: u64, f: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3 {
            let stop = &stop;
            scope.spawn(move || churn(server, stop, worker, seed.wrapping_add(worker as u64)));
        }
        // Also when `f` fails, or the workers would go on for ever.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _stop = Stop(&stop);
        f();
    });
}

fn digest(server: &Server) -> String {
    let digest = server.conn().ok(("DEBUG", "DIGEST"));
    String::from_utf8(bytes(&digest)).expect("hex digits")
}

/// A few hundred changes more than now.
fn some_changes_later(server: &Server) {
    let start = server.info_number("prlock_claims_granted");
    wait_until("more grants", PATIENCE, || (server.info_number("prlock_claims_granted") > start + 200).then_some(()));
}

#[test]
fn replicas_that_come_and_go_under_load_miss_nothing() {
    let mut rng = seeded_rng();
    for with_rdb_child in [false, true] {
        let server = Server::start();
        let mut replicas = Vec::new();
        under_churn(&server, rng.random(), || {
            some_changes_later(&server);
            if with_rdb_child {
                // A child that saves for nobody, just before the one that saves for the replica.
                server.conn().ok("BGSAVE");
            }
            replicas.push(server.replica());
            some_changes_later(&server);
            replicas.push(server.replica());
            // One goes, and its place in the backlog is kept.
            replicas[0].conn().ok(("REPLICAOF", "NO", "ONE"));
            some_changes_later(&server);
            let port = server.port().to_string();
            replicas[0].conn().ok(("REPLICAOF", "127.0.0.1", &port));
            some_changes_later(&server);
        });
        for replica in &replicas {
            replica.wait_in_sync_with(&server);
            assert_eq!(digest(replica), digest(&server), "with a child that saves: {with_rdb_child}");
        }
    }
}

/// Changes between the fork for the first replica and the moment in which that replica is there: with a child that takes its
/// time they come in between for certain.
#[test]
fn changes_while_the_first_replica_is_made_reach_it() {
    for diskless in ["yes", "no"] {
        let server =
            Server::builder().config("rdb-key-save-delay", "2000").config("repl-diskless-sync", diskless).start();
        let mut conn = server.conn();
        for n in 0..300 {
            conn.ok(("SET", format!("plain {n}"), 1));
        }
        for n in 0..4 {
            conn.ok(("PRLOCK.CLAIM", format!("k{n}"), "PX", 600_000, "TOKEN", "t"));
        }
        let replica = Server::builder().replica_of(&server).start();
        wait_until("the child", PATIENCE, || (server.info_number("rdb_bgsave_in_progress") == 1).then_some(()));
        for line in [
            "PRLOCK.CLAIM new PX 600000 TOKEN t",
            "PRLOCK.RELEASE k0 t",
            "PRLOCK.RENEW k1 t PX 700000",
            "PRLOCK.CLAIM k2 PX 600000 TOKEN u STEAL",
        ] {
            conn.ok(crate::support::cmd(line));
        }
        assert_eq!(server.info_number("rdb_bgsave_in_progress"), 1, "it was to take longer");
        replica.wait_in_sync_with(&server);
        assert_eq!(digest(&replica), digest(&server), "diskless: {diskless}");
    }
}

#[test]
fn an_aof_that_is_switched_on_under_load_misses_nothing() {
    let mut rng = seeded_rng();
    let server = Server::builder().config("appendfsync", "always").start();
    under_churn(&server, rng.random(), || {
        some_changes_later(&server);
        server.conn().ok(("CONFIG", "SET", "appendonly", "yes"));
        some_changes_later(&server);
        wait_until("the AOF to be written", PATIENCE, || {
            (server.info_number("aof_rewrite_in_progress") == 0 && server.info_number("aof_rewrite_scheduled") == 0)
                .then_some(())
        });
        some_changes_later(&server);
    });
    let before = digest(&server);
    server.kill9();
    server.restart_with(|plan| plan.config("appendonly", "yes"));
    assert_eq!(digest(&server), before);
}

#[test]
fn a_primary_that_restarts_keeps_its_replica_complete() {
    let mut rng = seeded_rng();
    let server = Server::start();
    let replica = server.replica();
    under_churn(&server, rng.random(), || some_changes_later(&server));
    replica.wait_in_sync_with(&server);
    wait_until("the synchronisation's child to end", PATIENCE, || {
        (server.info_number("rdb_bgsave_in_progress") == 0).then_some(())
    });
    server.conn().ok("SAVE");
    // The saved RDB holds the replication history, by which the replica may go on where it was.
    server.kill9();
    server.restart();
    let mut conn = server.conn();
    for n in 0..100 {
        conn.ok(("PRLOCK.CLAIM", format!("after the restart {n}"), "PX", 600_000));
    }
    replica.wait_in_sync_with(&server);
    assert_eq!(digest(&replica), digest(&server));
}

/// The data set is dirty after a change whether or not anybody listens, so that save points work.
#[test]
fn changes_count_without_a_listener() {
    let server = Server::start();
    let mut conn = server.conn();
    let dirty = || server.info_number("rdb_changes_since_last_save");
    for (command, changes) in [
        ("PRLOCK.CLAIM k PX 60000 TOKEN t", 1),
        ("PRLOCK.CLAIM k PX 60000 TOKEN u", 0),
        ("PRLOCK.RENEW k t PX 60000", 1),
        ("PRLOCK.RENEW k u PX 60000", 0),
        ("PRLOCK.RELEASE k u", 0),
        ("PRLOCK.RELEASE k t", 1),
    ] {
        let before = dirty();
        conn.ok(crate::support::cmd(command));
        assert_eq!(dirty() - before, changes, "{command}");
    }
}
