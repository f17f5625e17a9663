//! Under memory pressure a server may evict locks that are held, where its policy allows it: the module warns, counts, and
//! forgets them at once. CASES 61.

use crate::support::{PATIENCE, Server, Value, cmd, int, wait_until};

const WARNING: &str = "maxmemory-policy lets the server evict locks";

#[test]
fn an_evicted_lock_is_counted_and_gone() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        for db in [0, 3] {
            let server = Server::builder().config("maxmemory-policy", policy).start();
            assert_eq!(server.log().matches(WARNING).count(), 1, "at load");
            let mut conn = server.conn();
            conn.select(db);
            let count = 3_000;
            for number in 0..count {
                conn.claim_px(&format!("k{number:04}"), 600_000 + number);
            }
            let limit = server.info_number("used_memory") - 150_000;
            conn.ok(("CONFIG", "SET", "maxmemory", limit));
            wait_until("evictions", PATIENCE, || {
                // Each command is an occasion to evict. What INFO itself takes is no measure of what is left to do.
                let before = server.info_number("evicted_keys");
                conn.ok(("PING",));
                (before > 0 && server.info_number("evicted_keys") == before).then_some(())
            });
            conn.ok(("CONFIG", "SET", "maxmemory", 0));
            let evicted = server.info_number("evicted_keys");
            assert_eq!((conn.gauge("evicted"), conn.gauge("deleted"), conn.gauge("expired")), (evicted, 0, 0));
            assert_eq!(conn.gauge("held"), count - evicted);
            let left = conn.list();
            assert_eq!(left.len() as i64, count - evicted);
            server.assert_locks_agree();
            let (kept, gone): (Vec<i64>, Vec<i64>) =
                (0..count).partition(|number| left.contains(&format!("k{number:04}")));
            if policy == "volatile-ttl" {
                // Those that would have lapsed first; the server picks among samples, so by and large.
                let mean = |numbers: &[i64]| numbers.iter().sum::<i64>() / numbers.len() as i64;
                assert!(mean(&gone) < mean(&kept), "{} evicted", gone.len());
            }
            let gone: Vec<String> = gone.iter().map(|number| format!("k{number:04}")).collect();
            for key in &gone[..10] {
                assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, format!("t:{key}"), "PX", 1_000))), 0);
                conn.claim(key);
            }
        }
    }
}

#[test]
fn a_policy_that_evicts_is_warned_of_when_it_is_set() {
    let server = Server::start();
    let warnings = || server.log().matches(WARNING).count();
    assert_eq!(warnings(), 0, "noeviction is the default");
    let mut conn = server.conn();
    for (due, policy) in [(1, "allkeys-lfu"), (2, "volatile-ttl"), (2, "noeviction"), (3, "volatile-random")] {
        conn.ok(("CONFIG", "SET", "maxmemory-policy", policy));
        assert_eq!(warnings(), due, "{policy}");
    }
    conn.ok(cmd("CONFIG SET maxmemory 0"));
    assert_eq!(warnings(), 3, "another setting");
    assert_eq!(conn.ok(("PING",)), Value::SimpleString("PONG".into()));
}
