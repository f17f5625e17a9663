//! Whatever Redis does to keys it does to locks, and LIST, INFO, REVOKE, RENEW and the gauges know it in the very next
//! command. CASES 28, 45, 48, 52.

use crate::support::{Conn, PATIENCE, Server, Value, int, lock_info, wait_until};

/// Where a row runs.
#[derive(Clone, Copy)]
struct Place {
    /// The selected database, and another one.
    home: i64,
    away: i64,
    /// A server to MIGRATE to.
    peer: u16,
}

/// One way to change the keyspace, and the locks that are left in the two databases. Each claim made has holder `h`.
struct Row {
    what: &'static str,
    does: fn(&mut Conn, Place),
    home: &'static [&'static str],
    away: &'static [&'static str],
}

const fn row(
    what: &'static str,
    does: fn(&mut Conn, Place),
    home: &'static [&'static str],
    away: &'static [&'static str],
) -> Row {
    Row { what, does, home, away }
}

fn claim_all(conn: &mut Conn, keys: &[&str]) {
    for key in keys {
        conn.claim(key);
    }
}

/// A lock in the other database.
fn claim_away(conn: &mut Conn, place: Place, key: &str) {
    conn.select(place.away);
    conn.claim(key);
    conn.select(place.home);
}

fn dump(conn: &mut Conn, key: &str) -> Vec<u8> {
    crate::support::bytes(&conn.ok(("DUMP", key)))
}

/// Waits until the deadline of a key is past, without touching it.
fn let_pass(conn: &mut Conn, key: &str) {
    let at_ms = int(&conn.ok(("PEXPIRETIME", key)));
    conn.wait_past(at_ms);
}

const ROWS: &[Row] = &[
    row("nothing", |c, _| claim_all(c, &["a", "b"]), &["a", "b"], &[]),
    row(
        "DEL",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("DEL", "a"));
        },
        &["b"],
        &[],
    ),
    row(
        "UNLINK",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("UNLINK", "a", "no such key"));
        },
        &["b"],
        &[],
    ),
    row(
        "SET over it",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("SET", "a", "x"));
        },
        &["b"],
        &[],
    ),
    row(
        "MSET over it",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("MSET", "a", "x", "b", "y"));
        },
        &[],
        &[],
    ),
    row(
        "SETNX, GETDEL and GET do nothing to it",
        |c, _| {
            claim_all(c, &["a", "b"]);
            assert_eq!(c.ok(("SETNX", "a", "x")), Value::Int(0));
            assert_eq!(c.ok(("SET", "a", "x", "NX")), Value::Nil);
            assert!(c.err(("GETDEL", "a")).starts_with("WRONGTYPE"));
            assert!(c.err(("GET", "a")).starts_with("WRONGTYPE"));
            assert!(c.err(("LPUSH", "a", "x")).starts_with("WRONGTYPE"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "STORE over it",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("SADD", "set", "x"));
            c.ok(("SUNIONSTORE", "a", "set"));
            c.ok(("DEL", "a"));
        },
        &["b"],
        &[],
    ),
    row(
        "EXPIRE 0",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("EXPIRE", "a", 0));
        },
        &["b"],
        &[],
    ),
    row(
        "PEXPIREAT in the past",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("PEXPIREAT", "a", 1));
        },
        &["b"],
        &[],
    ),
    row(
        "PERSIST",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("PERSIST", "a"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RENAME",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "c"));
        },
        &["b", "c"],
        &[],
    ),
    row(
        "RENAME to its own name",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "a"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RENAME there and back",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "c"));
            c.ok(("RENAME", "c", "a"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RENAME around",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "x"));
            c.ok(("RENAME", "b", "a"));
            c.ok(("RENAME", "x", "b"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RENAME of a lock over a lock",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "b"));
        },
        &["b"],
        &[],
    ),
    row(
        "RENAME of a string over a lock",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("SET", "s", "x"));
            c.ok(("RENAME", "s", "a"));
        },
        &["b"],
        &[],
    ),
    row(
        "RENAME of a lock over a string",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("SET", "s", "x"));
            c.ok(("RENAME", "a", "s"));
        },
        &["b", "s"],
        &[],
    ),
    row(
        "RENAME and DEL",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "c"));
            c.ok(("DEL", "c"));
        },
        &["b"],
        &[],
    ),
    row(
        "RENAME and a claim of the old name",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "c"));
            c.claim("a");
        },
        &["a", "b", "c"],
        &[],
    ),
    row(
        "RENAMENX",
        |c, _| {
            claim_all(c, &["a", "b"]);
            assert_eq!(c.ok(("RENAMENX", "a", "b")), Value::Int(0));
            assert_eq!(c.ok(("RENAMENX", "a", "c")), Value::Int(1));
        },
        &["b", "c"],
        &[],
    ),
    row(
        "MOVE",
        |c, p| {
            claim_all(c, &["a", "b"]);
            assert_eq!(c.ok(("MOVE", "a", p.away)), Value::Int(1));
        },
        &["b"],
        &["a"],
    ),
    row(
        "MOVE to a database that has the key",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "a");
            assert_eq!(c.ok(("MOVE", "a", p.away)), Value::Int(0));
        },
        &["a", "b"],
        &["a"],
    ),
    row(
        "SWAPDB",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("SWAPDB", p.home, p.away));
        },
        &["c"],
        &["a", "b"],
    ),
    row(
        "SWAPDB of a lock just renamed and one just restored",
        |c, p| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "b");
            c.ok(("DEL", "b"));
            c.ok(("RENAME", "a", "c"));
            c.ok(("RESTORE", "b", 60_000, payload));
            c.ok(("SWAPDB", p.home, p.away));
        },
        &[],
        &["b", "c"],
    ),
    row(
        "COPY is refused",
        |c, p| {
            claim_all(c, &["a", "b"]);
            c.err(("COPY", "a", "c"));
            c.err(("COPY", "a", "c", "DB", p.away));
            c.err(("COPY", "a", "b", "REPLACE"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "COPY of a string over a lock",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("SET", "s", "x"));
            assert_eq!(c.ok(("COPY", "s", "a", "REPLACE")), Value::Int(1));
        },
        &["b"],
        &[],
    ),
    row(
        "RESTORE",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            c.ok(("DEL", "a"));
            c.ok(("RESTORE", "a", 60_000, payload));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RESTORE under another name",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            c.ok(("DEL", "a"));
            c.ok(("RESTORE", "c", 60_000, payload));
        },
        &["b", "c"],
        &[],
    ),
    row(
        "RESTORE over a lock is an error",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            assert!(c.err(("RESTORE", "b", 60_000, payload)).starts_with("BUSYKEY"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RESTORE REPLACE",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            c.ok(("RESTORE", "b", 60_000, payload, "REPLACE"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RESTORE REPLACE of a string over a lock",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("SET", "s", "x"));
            let payload = dump(c, "s");
            c.ok(("RESTORE", "a", 0, payload, "REPLACE"));
        },
        &["b"],
        &[],
    ),
    row(
        "RESTORE of one past its deadline",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            c.ok(("DEL", "a"));
            c.ok(("RESTORE", "a", 1, &payload, "ABSTTL"));
            c.ok(("RESTORE", "b", 1, &payload, "ABSTTL", "REPLACE"));
        },
        &[],
        &[],
    ),
    row(
        "RESTORE with ABSTTL",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            let at_ms = int(&c.ok(("PEXPIRETIME", "a")));
            c.ok(("DEL", "a"));
            c.ok(("RESTORE", "a", at_ms, payload, "ABSTTL"));
        },
        &["a", "b"],
        &[],
    ),
    row(
        "RESTORE, then RENAME, then MOVE",
        |c, p| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            c.ok(("DEL", "a"));
            c.ok(("RESTORE", "a", 60_000, payload));
            c.ok(("RENAME", "a", "c"));
            c.ok(("MOVE", "c", p.away));
        },
        &["b"],
        &["c"],
    ),
    row(
        "RESTORE, RENEW, then RENAME",
        |c, _| {
            claim_all(c, &["a", "b"]);
            let payload = dump(c, "a");
            c.ok(("DEL", "a"));
            c.ok(("RESTORE", "a", 60_000, payload));
            assert_eq!(int(&c.ok(("PRLOCK.RENEW", "a", "t:a", "PX", 60_000))), 1);
            c.ok(("RENAME", "a", "c"));
        },
        &["b", "c"],
        &[],
    ),
    row(
        "MIGRATE",
        |c, p| {
            claim_all(c, &["a", "b"]);
            c.ok(("MIGRATE", "127.0.0.1", p.peer, "a", p.home, 10_000));
        },
        &["b"],
        &[],
    ),
    row(
        "active expiry",
        |c, _| {
            claim_all(c, &["b"]);
            c.claim_px("a", 1);
            wait_until("the server to expire the lock", PATIENCE, || {
                (c.ok(("DBSIZE",)) == Value::Int(1)).then_some(())
            });
        },
        &["b"],
        &[],
    ),
    row(
        "FLUSHDB",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("FLUSHDB",));
        },
        &[],
        &["c"],
    ),
    row(
        "FLUSHDB ASYNC",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("FLUSHDB", "ASYNC"));
            c.claim("a");
        },
        &["a"],
        &["c"],
    ),
    row(
        "FLUSHDB ASYNC of a renamed lock and a restored one",
        |c, p| {
            claim_all(c, &["a", "b", "x"]);
            claim_away(c, p, "b");
            let payload = dump(c, "b");
            c.ok(("DEL", "b"));
            c.ok(("RENAME", "a", "c"));
            c.ok(("MOVE", "x", p.away));
            c.ok(("RESTORE", "b", 60_000, payload));
            c.ok(("FLUSHDB", "ASYNC"));
        },
        &[],
        &["b", "x"],
    ),
    row(
        "FLUSHALL",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("FLUSHALL", "SYNC"));
        },
        &[],
        &[],
    ),
    row(
        "FLUSHALL ASYNC",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("FLUSHALL", "ASYNC"));
            c.claim("b");
        },
        &["b"],
        &[],
    ),
    row(
        "DEBUG RELOAD",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("DEBUG", "RELOAD"));
        },
        &["a", "b"],
        &["c"],
    ),
    row(
        "DEBUG LOADAOF",
        |c, p| {
            claim_all(c, &["a", "b"]);
            claim_away(c, p, "c");
            c.ok(("DEBUG", "LOADAOF"));
        },
        &["a", "b"],
        &["c"],
    ),
    row(
        "MULTI with all sorts",
        |c, p| {
            claim_all(c, &["a", "b"]);
            c.ok(("MULTI",));
            c.ok(("RENAME", "a", "c"));
            c.ok(("MOVE", "b", p.away));
            c.ok(("PRLOCK.CLAIM", "a", "PX", 60_000, "TOKEN", "t:a", "HOLDER", "h"));
            c.ok(("DEL", "c"));
            c.ok(("EXEC",));
        },
        &["a"],
        &["b"],
    ),
];

/// Rows after which a lock past its deadline still lies in the keyspace until somebody looks.
const LAZY: &[Row] = &[
    row(
        "lazy expiry",
        |c, _| {
            claim_all(c, &["b"]);
            c.claim_px("a", 5);
            let_pass(c, "a");
        },
        &["b"],
        &[],
    ),
    row(
        "PEXPIRE and lazy expiry of a renamed lock",
        |c, _| {
            claim_all(c, &["a", "b"]);
            c.ok(("RENAME", "a", "c"));
            c.ok(("PEXPIRE", "c", 5));
            let_pass(c, "c");
        },
        &["b"],
        &[],
    ),
];

/// The first command after the row, which must already know.
#[derive(Clone, Copy, Debug)]
enum View {
    List,
    Gauge,
    Info,
    Renew,
    Release,
    Revoke,
}

const VIEWS: [View; 6] = [View::List, View::Gauge, View::Info, View::Renew, View::Release, View::Revoke];

const NAMES: [&str; 5] = ["a", "b", "c", "s", "x"];

/// A renamed lock keeps its token: any of these may be its.
fn with_any_token(conn: &mut Conn, command: &str, rest: &[&str], key: &str) -> i64 {
    NAMES
        .iter()
        .map(|name| {
            let token = format!("t:{name}");
            let mut words = vec![command, key, &token];
            words.extend(rest);
            int(&conn.ok(words))
        })
        .sum()
}

fn check(conn: &mut Conn, view: View, place: Place, row: &Row) {
    let what = row.what;
    if let View::Gauge = view {
        assert_eq!(conn.gauge("held"), (row.home.len() + row.away.len()) as i64, "held after {what}");
    }
    for (db, keys) in [(place.home, row.home), (place.away, row.away)] {
        if db != place.home {
            conn.select(db);
        }
        let count = keys.len() as i64;
        match view {
            View::List | View::Gauge => assert_eq!(conn.list(), keys, "LIST of db {db} after {what}"),
            View::Info => {
                for name in NAMES {
                    let found = lock_info(conn, name).is_some();
                    assert_eq!(found, keys.contains(&name), "INFO {name} in db {db} after {what}");
                }
            }
            View::Renew => {
                for name in NAMES {
                    let renewed = with_any_token(conn, "PRLOCK.RENEW", &["PX", "50000"], name);
                    assert_eq!(renewed, i64::from(keys.contains(&name)), "RENEW {name} in db {db} after {what}");
                }
            }
            View::Release => {
                for name in NAMES {
                    let released = with_any_token(conn, "PRLOCK.RELEASE", &[], name);
                    assert_eq!(released, i64::from(keys.contains(&name)), "RELEASE {name} in db {db} after {what}");
                }
                assert_eq!(conn.list(), Vec::<String>::new(), "LIST of db {db} after RELEASE after {what}");
            }
            View::Revoke => {
                assert_eq!(conn.ok(("PRLOCK.REVOKE", "h")), Value::Int(count), "REVOKE in db {db} after {what}");
                assert_eq!(conn.scan_locks().len(), 0, "locks left in db {db} by REVOKE after {what}");
            }
        }
    }
    if matches!(view, View::Release | View::Revoke) {
        assert_eq!(conn.gauge("held"), 0, "held after {view:?} after {what}");
    }
}

fn run(rows: &[Row], views: &[View], server: &Server, peer: &Server) {
    for (home, away) in [(0, 3), (3, 1)] {
        let place = Place { home, away, peer: peer.port() };
        for row in rows {
            for view in views {
                let mut conn = server.conn();
                conn.ok(("FLUSHALL",));
                peer.conn().ok(("FLUSHALL",));
                conn.select(home);
                (row.does)(&mut conn, place);
                check(&mut conn, *view, place, row);
            }
        }
    }
}

#[test]
fn the_next_command_knows_what_the_keyspace_did() {
    // For DEBUG LOADAOF; when it is written does not matter here.
    let server = Server::builder().config("appendonly", "yes").config("appendfsync", "no").start();
    let peer = Server::start();
    run(ROWS, &VIEWS, &server, &peer);
}

#[test]
fn the_next_command_knows_of_a_deadline_that_nobody_noticed() {
    let server = Server::start();
    let peer = Server::start();
    server.conn().ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
    let views = [View::List, View::Info, View::Renew, View::Release, View::Revoke];
    run(LAZY, &views, &server, &peer);
    server.assert_locks_agree();
}

/// CASES 52: with active expiry off, the next claim gets it.
#[test]
fn a_lock_past_its_deadline_is_free_without_active_expiry() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
        let first = conn.claim_px("k", 5);
        let_pass(&mut conn, "k");
        assert_eq!(conn.list(), Vec::<String>::new());
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", "t:k", "PX", 1_000))), 0);
        let second = conn.claim_px("k", 60_000);
        assert!(second > first);
        assert_eq!(conn.list(), ["k"]);
    }
    server.assert_locks_agree();
}

#[test]
fn a_migrated_lock_is_whole_at_its_new_place() {
    let (server, peer) = (Server::start(), Server::start());
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let fence = conn.claim("k");
        let at_ms = int(&conn.ok(("PEXPIRETIME", "k")));
        conn.ok(("MIGRATE", "127.0.0.1", peer.port(), "k", db, 10_000));
        assert_eq!(conn.list(), Vec::<String>::new());
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", "t:k", "PX", 1_000))), 0);

        let mut there = peer.conn();
        there.select(db);
        assert_eq!(there.list(), ["k"]);
        let info = lock_info(&mut there, "k").expect("the lock");
        assert_eq!(int(&info["fence"]), fence);
        assert!((int(&there.ok(("PEXPIRETIME", "k"))) - at_ms).abs() <= 1_000);
        assert_eq!(int(&there.ok(("PRLOCK.RENEW", "k", "t:k", "PX", 60_000, "FENCE", fence))), 1);
        assert!(there.claim("another") > fence);
    }
}

/// What ended a lock is counted as what it was, and a rename is no end.
#[test]
fn the_counters_tell_deletions_from_expiries_and_renames() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let expect = |conn: &mut Conn, what: &str, deleted: i64, expired: i64, does: &dyn Fn(&mut Conn)| {
            let before = (conn.gauge("deleted"), conn.gauge("expired"));
            does(conn);
            let after = (conn.gauge("deleted"), conn.gauge("expired"));
            assert_eq!((after.0 - before.0, after.1 - before.1), (deleted, expired), "{what} in db {db}");
        };
        expect(&mut conn, "a release", 0, 0, &|c| {
            c.claim("k");
            c.ok(("PRLOCK.RELEASE", "k", "t:k"));
        });
        expect(&mut conn, "a steal and a revoke", 0, 0, &|c| {
            c.claim("k");
            c.ok(("PRLOCK.CLAIM", "k", "PX", 60_000, "STEAL", "HOLDER", "thief"));
            c.ok(("PRLOCK.REVOKE", "thief"));
        });
        expect(&mut conn, "DEL, SET over it, FLUSHDB", 4, 0, &|c| {
            claim_all(c, &["a", "b", "d", "e"]);
            c.ok(("DEL", "a"));
            c.ok(("SET", "b", "x"));
            c.ok(("FLUSHDB",));
        });
        expect(&mut conn, "EXPIRE 0", 1, 0, &|c| {
            c.claim("k");
            c.ok(("EXPIRE", "k", 0));
        });
        expect(&mut conn, "RENAME before it is noticed", 0, 0, &|c| {
            c.claim("a");
            c.ok(("RENAME", "a", "b"));
        });
        expect(&mut conn, "RENAME noticed by LIST", 0, 0, &|c| {
            c.list();
        });
        expect(&mut conn, "MOVE there and back, noticed by RENEW", 0, 0, &|c| {
            c.ok(("MOVE", "b", 7));
            c.ok(("SELECT", 7));
            c.ok(("PRLOCK.RENEW", "b", "t:a", "PX", 60_000));
            c.ok(("MOVE", "b", db));
            c.ok(("SELECT", db));
            c.list();
        });
        expect(&mut conn, "FLUSHDB of one renamed and one restored", 2, 0, &|c| {
            claim_all(c, &["x", "y"]);
            let payload = dump(c, "y");
            c.ok(("PRLOCK.RELEASE", "y", "t:y"));
            c.ok(("RENAME", "x", "z"));
            c.ok(("RESTORE", "y", 60_000, payload));
            c.ok(("MOVE", "b", 7));
            c.ok(("FLUSHDB", "ASYNC"));
            c.ok(("SELECT", 7));
            c.ok(("MOVE", "b", db));
            c.ok(("SELECT", db));
        });
        expect(&mut conn, "RENAME over it", 1, 0, &|c| {
            c.ok(("SET", "s", "x"));
            c.ok(("RENAME", "s", "b"));
            c.ok(("DEL", "b"));
        });
        expect(&mut conn, "lazy expiry", 0, 1, &|c| {
            c.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
            c.claim_px("k", 1);
            let_pass(c, "k");
            assert_eq!(c.ok(("EXISTS", "k")), Value::Int(0));
            c.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 1));
        });
        expect(&mut conn, "active expiry", 0, 1, &|c| {
            c.claim_px("k", 1);
            wait_until("the lock to expire", PATIENCE, || (c.ok(("DBSIZE",)) == Value::Int(0)).then_some(()));
        });
        expect(&mut conn, "a string of the same name that expires later", 1, 0, &|c| {
            c.claim("k");
            c.ok(("DEL", "k"));
            c.ok(("SET", "k", "x", "PX", 250));
            wait_until("the string to expire", PATIENCE, || (c.ok(("EXISTS", "k")) == Value::Int(0)).then_some(()));
        });
    }
}

/// A renamed lock is known under no name when its database is flushed in the background, and a thread frees it among very
/// many other keys: it counts as gone at once, and not only when its turn comes.
#[test]
fn a_renamed_lock_is_gone_at_once_with_a_large_flush() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.select(3);
    for round in 0..3 {
        let script = "for i = 1, 100000 do redis.call('SET', 'k' .. i, 'x') end";
        conn.ok(("EVAL", script, 0));
        for number in 0..20 {
            conn.claim(&format!("a{number}"));
            conn.ok(("RENAME", format!("a{number}"), format!("b{number}")));
        }
        let mut pipe = redis::pipe();
        pipe.cmd("FLUSHDB").arg("ASYNC").cmd("INFO").arg("prlock");
        let replies: Vec<Value> = pipe.query(&mut conn).expect("a flush and a look");
        let info = crate::support::text(&replies[1]);
        assert_eq!(crate::support::find_info(&info, "prlock_held").as_deref(), Some("0"), "round {round}");
        assert_eq!(conn.list(), Vec::<String>::new());
        assert_eq!(conn.gauge("deleted"), 20 * (round + 1));
    }
}
