//! Very many locks that nobody releases. CASES 65.

use std::time::Duration;

use crate::support::{PATIENCE, Server, Value, wait_until};

/// `PRLOCK_SHORT_LIVED=1000000` for the million.
fn many() -> usize {
    match std::env::var("PRLOCK_SHORT_LIVED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("PRLOCK_SHORT_LIVED is no number: {text:?}")),
        Err(_) => 200_000,
    }
}

#[test]
fn locks_that_lapse_leave_nothing() {
    const BATCH: usize = 20_000;
    let server = Server::builder().config("appendonly", "yes").config("appendfsync", "no").start();
    let before = server.info_number("used_memory");
    let mut raw = server.raw();
    for (batch, db) in (0..many() / BATCH).zip([0, 3].into_iter().cycle()) {
        raw.call(("SELECT", db)).expect("SELECT");
        let mut commands = String::new();
        for number in batch * BATCH..(batch + 1) * BATCH {
            commands += &format!("PRLOCK.CLAIM k{number} PX 1 TOKEN t HOLDER h\r\n");
        }
        raw.send(commands.as_bytes());
        // Each of these keys is new, so each is granted, with a fence of 16 digits.
        let reply = b"*2\r\n$1\r\nt\r\n:1700000000000000\r\n".len();
        let replies = raw.take_bytes(BATCH * reply, PATIENCE);
        assert!(replies.chunks(reply).all(|reply| reply.starts_with(b"*2\r\n$1\r\nt\r\n:")));
    }
    for db in [3, 0] {
        let mut conn = server.conn();
        conn.select(db);
        wait_until("all locks to be past their deadline", PATIENCE, || conn.list().is_empty().then_some(()));
        wait_until("the server to remove them", Duration::from_secs(60), || {
            (conn.ok(("DBSIZE",)) == Value::Int(0)).then_some(())
        });
    }
    let mut conn = server.conn();
    assert_eq!(conn.gauge("held"), 0);
    assert_eq!(conn.gauge("expired"), (many() / BATCH * BATCH) as i64);
    assert_eq!(conn.gauge("deleted"), 0);
    wait_until("the memory to come back", PATIENCE, || {
        (server.info_number("used_memory") < before + 2_000_000).then_some(())
    });
    server.restart();
    assert_eq!(server.conn().ok(("DBSIZE",)), Value::Int(0));
    assert_eq!(server.conn().gauge("held"), 0);
    server.assert_locks_agree();
}
