//! The server's own tools on locks, and its unusual modes.

use crate::support::{Conn, PATIENCE, Server, Value, bytes, cmd, int, text, wait_for_offset_equal, wait_until};

/// CASES 54: MEMORY USAGE, DEBUG OBJECT, OBJECT, DEBUG DIGEST, MEMORY DOCTOR, SCAN by type.
#[test]
fn the_servers_tools_work_on_locks() {
    let server = Server::start();
    let mut conn = server.conn();
    for number in 0..1_000 {
        conn.granted(&format!("PRLOCK.CLAIM k{number} PX 600000 TOKEN token{number} HOLDER h{}", number % 10));
    }
    let usage = int(&conn.ok(cmd("MEMORY USAGE k1")));
    assert!((100..1_000).contains(&usage), "{usage}");
    let long = "x".repeat(512);
    conn.ok(("PRLOCK.CLAIM", "long", "PX", 600_000, "TOKEN", &long, "HOLDER", &long));
    assert!(int(&conn.ok(cmd("MEMORY USAGE long"))) > usage + 900);
    assert!(text(&conn.ok(cmd("DEBUG OBJECT k1"))).contains("encoding:"));
    assert!(!text(&conn.ok(cmd("OBJECT ENCODING k1"))).is_empty());
    assert_eq!(conn.int("OBJECT REFCOUNT k1"), 1);
    assert!(conn.int("OBJECT IDLETIME k1") >= 0);
    conn.ok(cmd("CONFIG SET maxmemory-policy allkeys-lfu"));
    assert!(conn.int("OBJECT FREQ k1") >= 0);
    conn.ok(cmd("CONFIG SET maxmemory-policy noeviction"));
    conn.ok(cmd("MEMORY DOCTOR"));
    conn.ok(cmd("MEMORY STATS"));
    let digest = bytes(&conn.ok(cmd("DEBUG DIGEST")));
    assert_ne!(digest, b"0000000000000000000000000000000000000000");
    assert_ne!(conn.ok(cmd("DEBUG DIGEST-VALUE k1")), conn.ok(cmd("DEBUG DIGEST-VALUE k2")));
    assert_eq!(text(&conn.ok(cmd("TYPE k1"))), "prlock-rs");
    let scanned: (i64, Vec<String>) =
        redis::cmd("SCAN").arg(&["0", "COUNT", "100000", "TYPE", "prlock-rs"]).query(&mut conn).expect("SCAN");
    assert_eq!(scanned.1.len(), 1_001);
    assert_eq!(bytes(&conn.ok(cmd("DEBUG DIGEST"))), digest);
}

/// CASES 54: active defragmentation, where the server was built for it, moves the keyspace under the registry's feet. Else it
/// says that it can't.
#[test]
fn defragmentation_harms_no_lock() {
    const LOCKS: usize = 24_000;
    let server = Server::start();
    let mut conn = server.conn();
    let mut run = |line: &dyn Fn(usize) -> Option<String>| {
        for chunk in 0..LOCKS / 1_000 {
            let mut pipe = redis::pipe();
            for number in chunk * 1_000..(chunk + 1) * 1_000 {
                if let Some(line) = line(number) {
                    pipe.add_command(redis::Cmd::new()).arg(cmd(&line)).ignore();
                }
            }
            pipe.query::<()>(&mut conn).expect("a pipeline");
        }
    };
    run(&|number| Some(format!("PRLOCK.CLAIM k{number} PX 600000 TOKEN token{number} HOLDER h{}", number % 10)));
    // Holes for the rest to be moved into.
    run(&|number| (number % 8 != 0).then(|| format!("PRLOCK.RELEASE k{number} token{number}")));
    let left: Vec<usize> = (0..LOCKS).step_by(8).collect();
    let digest = bytes(&conn.ok(cmd("DEBUG DIGEST")));
    let listed = conn.listed();
    conn.ok(cmd(
        "CONFIG SET active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-threshold-upper 1 \
         active-defrag-cycle-min 50 active-defrag-cycle-max 75",
    ));
    if let Err(error) = conn.call(cmd("CONFIG SET activedefrag yes")) {
        assert!(error.to_string().contains("cannot be enabled"), "{error}");
        return;
    }
    wait_until("it to move something", PATIENCE, || (server.info_number("active_defrag_hits") > 1_000).then_some(()));
    // It goes on meanwhile.
    assert_eq!(conn.listed(), listed);
    assert_eq!(listed.len(), left.len());
    assert_eq!(bytes(&conn.ok(cmd("DEBUG DIGEST"))), digest);
    assert_eq!(conn.int("PRLOCK.REVOKE h0"), left.iter().filter(|number| *number % 10 == 0).count() as i64);
    for number in left.iter().filter(|number| *number % 10 != 0) {
        assert_eq!(conn.int(&format!("PRLOCK.RENEW k{number} token{number} PX 600000")), 1);
        assert_eq!(conn.int(&format!("PRLOCK.RELEASE k{number} token{number}")), 1);
    }
    assert_eq!(server.stat("held"), 0);
}

/// CASES 51: on a writable replica an expired lock counts as free; nothing that it does reaches the primary.
#[test]
fn a_writable_replica_takes_an_expired_lock_for_free() {
    let primary = Server::start();
    // The primary keeps it: the deletion would come from there.
    primary.conn().ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    let replica = primary.replica();
    replica.conn().ok(cmd("CONFIG SET replica-read-only no"));
    replica.conn().ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    let mut conn = primary.conn();
    let fence = conn.granted("PRLOCK.CLAIM k PX 1 TOKEN t").fence;
    let at_ms = conn.time_ms();
    wait_for_offset_equal(&primary, &replica);
    let mut conn = replica.conn();
    conn.wait_past(at_ms + 1);
    assert_eq!(conn.listed(), [""; 0]);
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 60000"), 0);
    let granted = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN u");
    assert!(granted.fence > fence);
    assert_eq!(conn.listed(), ["k"]);
    assert_eq!(conn.int("PRLOCK.RELEASE k u"), 1);
    assert_eq!(primary.conn().int("PRLOCK.RENEW k u PX 1000"), 0);
}

/// CASES 53: while writes are paused a lock that lapses is out of LIST, a claim waits for the end, a closed connection
/// with LINGER and a deadline with a waiter write nothing, and the server stays up.
#[test]
fn a_pause_of_writes_holds_everything_back() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM lapses PX 1500 TOKEN t");
    let mut waiter = server.waiter(cmd("PRLOCK.CLAIM lapses PX 60000 TOKEN w BLOCK 0"));
    let mut holder = server.raw();
    holder.call(cmd("PRLOCK.CLAIM lingers PX 60000 TOKEN t LINGER 0")).expect("a grant");
    conn.ok(cmd("CLIENT PAUSE 60000 WRITE"));
    let lapsed_at_ms = conn.int("PEXPIRETIME lapses");
    let offset = server.info_number("master_repl_offset");
    let dirty = server.dirty();
    holder.close();
    let mut claim = server.background(cmd("PRLOCK.CLAIM free PX 60000"));
    conn.wait_past(lapsed_at_ms + 100);
    assert_eq!(conn.listed(), ["lingers"]);
    assert_eq!(conn.ok(("PRLOCK.INFO", "lapses")), Value::Nil);
    assert_eq!(waiter.reply_now(), None);
    assert_eq!(claim.reply_now(), None);
    assert_eq!(server.dirty(), dirty);
    assert_eq!(server.info_number("master_repl_offset"), offset);
    conn.ok(cmd("CLIENT UNPAUSE"));
    assert!(waiter.reply(PATIENCE).is_ok());
    assert!(claim.reply(PATIENCE).is_ok());
    wait_until("the linger", PATIENCE, || (conn.listed() == ["free", "lapses"]).then_some(()));
    assert_eq!(conn.int("PRLOCK.RELEASE lapses w"), 1);
}

/// Locks in a database other than the first, by every command: nothing leaks into another.
#[test]
fn databases_are_apart() {
    let server = Server::start();
    let mut conns: Vec<Conn> = [0, 3, 15].map(|db| server.conn_with(Conn::resp2().set_db(db))).into();
    for (number, conn) in conns.iter_mut().enumerate() {
        conn.granted(&format!("PRLOCK.CLAIM k PX 60000 TOKEN t{number} HOLDER h"));
    }
    for (number, conn) in conns.iter_mut().enumerate() {
        assert_eq!(conn.int(&format!("PRLOCK.RENEW k t{} PX 60000", (number + 1) % 3)), 0);
        assert_eq!(conn.int(&format!("PRLOCK.RENEW k t{number} PX 60000")), 1);
        assert_eq!(conn.listed(), ["k"]);
    }
    assert_eq!(conns[1].int("PRLOCK.REVOKE h"), 1);
    assert_eq!(conns[0].listed(), ["k"]);
    assert_eq!(conns[1].listed(), [""; 0]);
    assert_eq!(conns[2].int("PRLOCK.RELEASE k t2"), 1);
    assert_eq!(server.info_number("prlock_held"), 1);
}
