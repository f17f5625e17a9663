//! Locks on the disk: RDB, AOF with and without the RDB in front, rewrites, crashes, files that are broken. CASES 7, 19, 42,
//! 43.

use std::collections::BTreeMap;
use std::io::Write;

use crate::support::{
    Builder, Conn, Dumper, LAST_ENCODING, PATIENCE, Server, Stored, Value, bytes, cmd, int, items, map, pipeline,
    wait_until,
};

/// The token of each lock, by database and key.
type Tokens = BTreeMap<(i64, Vec<u8>), Vec<u8>>;

/// Database, key, holder, fence, renewals and linger of a lock.
type Listed = (i64, Vec<u8>, Vec<u8>, i64, i64, i64);

/// Locks of every kind in two databases; returns the tokens.
fn fill(server: &Server) -> Tokens {
    let mut tokens = BTreeMap::new();
    let every_byte: Vec<u8> = (0..=255).collect();
    // As serializers write them: msgpack, igbinary, compressed.
    let blobs: [&[u8]; 5] =
        [b"\x93\x01\xc0\xff", b"\0\0\0\x02\x11", b"x\x9c\x4b\x04\0", b"\r\n%s%n\0\xff", &every_byte];
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        for (number, blob) in blobs.iter().enumerate() {
            let key = [&b"k"[..], blob].concat();
            conn.ok(("PRLOCK.CLAIM", &key, "PX", 3_600_000 + number, "TOKEN", *blob, "HOLDER", *blob));
            tokens.insert((db, key), blob.to_vec());
        }
        for line in [
            "PRLOCK.CLAIM lingers PX 3600000 TOKEN t LINGER 1800000",
            "PRLOCK.CLAIM renewed PX 3600000 TOKEN t",
            "PRLOCK.CLAIM forever PX 3600000 TOKEN t",
            "PRLOCK.CLAIM before PX 3600000 TOKEN t",
        ] {
            conn.granted(line);
        }
        assert_eq!(conn.int("PRLOCK.RENEW renewed t PX 3700000"), 1);
        conn.ok(("PERSIST", "forever"));
        conn.ok(("RENAME", "before", "after"));
        let plain = conn.granted("PRLOCK.CLAIM generated PX 3600000").token;
        tokens.insert((db, b"generated".to_vec()), plain);
        for key in ["lingers", "renewed", "forever", "after"] {
            tokens.insert((db, key.into()), b"t".to_vec());
        }
    }
    tokens
}

/// All that LIST says of the locks, without what moves with the clock.
fn listed(server: &Server) -> Vec<Listed> {
    let mut all = Vec::new();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        for lock in items(&conn.ok(("PRLOCK.LIST",))) {
            let lock = map(&lock);
            let number = |field: &str| int(&lock[field]);
            let (key, holder) = (bytes(&lock["key"]), bytes(&lock["holder"]));
            all.push((db, key, holder, number("fence"), number("renewals"), number("linger-ms")));
        }
    }
    all
}

/// Tokens, deadlines, fences, holders: everything is as it was, and later fences are greater.
fn assert_kept(server: &Server, what: &str, tokens: &Tokens, does: impl FnOnce(&Server)) {
    let (states, digest, list) = (server.lock_states(), server.digest(), listed(server));
    let last = server.conn().gauge("last_fence");
    assert_eq!(states.len(), tokens.len());
    does(server);
    assert_eq!(listed(server), list, "{what}");
    server.assert_locks_agree();
    assert_eq!(server.lock_states(), states, "{what}");
    assert_eq!(server.digest(), digest, "{what}");
    let mut conn = server.conn();
    assert_eq!(conn.gauge("held"), tokens.len() as i64, "{what}");
    assert!(conn.gauge("last_fence") >= list.iter().map(|lock| lock.3).max().expect("a lock"), "{what}");
    assert!(conn.claim("new") > last, "{what}");
    conn.ok(("PRLOCK.RELEASE", "new", "t:new"));
}

fn assert_tokens_fit(server: &Server, tokens: &Tokens) {
    for ((db, key), token) in tokens {
        let mut conn = server.conn();
        conn.select(*db);
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, b"wrong"))), 0);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, token, "PX", 60_000))), 1);
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, token))), 1);
    }
    assert_eq!(server.conn().gauge("held"), 0);
}

fn rewrite_aof(server: &Server) {
    let mut conn = server.conn();
    conn.ok(("BGREWRITEAOF",));
    wait_until("the rewrite to end", PATIENCE, || {
        let idle = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().all(|f| server.info_number(f) == 0);
        idle.then_some(())
    });
    assert_eq!(server.info_field("aof_last_bgrewrite_status"), "ok");
}

/// CASES 7: tokens of any bytes survive every path.
#[test]
fn an_rdb_keeps_everything() {
    let server = Server::start();
    let tokens = fill(&server);
    assert_kept(&server, "DEBUG RELOAD", &tokens, |server| drop(server.conn().ok(("DEBUG", "RELOAD"))));
    assert_kept(&server, "SAVE and a restart", &tokens, |server| {
        server.conn().ok(("SAVE",));
        server.restart();
    });
    assert_kept(&server, "BGSAVE and kill -9", &tokens, |server| {
        let mut conn = server.conn();
        conn.ok(("BGSAVE",));
        wait_until("the save to end", PATIENCE, || (server.info_number("rdb_bgsave_in_progress") == 0).then_some(()));
        server.kill9();
        server.restart();
    });
    assert_tokens_fit(&server, &tokens);
}

/// CASES 42.
#[test]
fn an_aof_keeps_everything() {
    for preamble in ["yes", "no"] {
        let server = Server::builder().aof().config("aof-use-rdb-preamble", preamble).start();
        let tokens = fill(&server);
        let what = |text: &str| format!("{text}, preamble {preamble}");
        assert_kept(&server, &what("LOADAOF"), &tokens, |server| drop(server.conn().ok(("DEBUG", "LOADAOF"))));
        assert_kept(&server, &what("a restart"), &tokens, Server::restart);
        assert_kept(&server, &what("a rewrite"), &tokens, rewrite_aof);
        assert_kept(&server, &what("a restart from the rewritten file"), &tokens, Server::restart);
        assert_kept(&server, &what("kill -9"), &tokens, |server| {
            server.kill9();
            server.restart();
        });
        assert_tokens_fit(&server, &tokens);
        server.restart();
        assert_eq!(server.conn().gauge("held"), 0);
        assert_eq!(server.lock_states().len(), 0);
    }
}

/// Commands behind the rewritten head of an AOF: databases swapped, flushed, keys renamed and moved.
#[test]
fn keyspace_commands_in_an_aof_are_followed() {
    for preamble in ["yes", "no"] {
        for (does, left) in [
            ("SWAPDB 0 3", 4),
            ("RENAME a c", 4),
            ("MOVE a 7", 4),
            ("FLUSHDB ASYNC", 2),
            ("FLUSHALL ASYNC", 0),
            ("PERSIST a", 4),
            ("PEXPIRE a 600000", 4),
            ("SET a x", 3),
        ] {
            let server = Server::builder().aof().config("aof-use-rdb-preamble", preamble).start();
            let mut conn = server.conn();
            for db in [0, 3] {
                conn.select(db);
                conn.claim("a");
                conn.claim("b");
            }
            conn.select(0);
            rewrite_aof(&server);
            conn.ok(cmd(does));
            let states = server.lock_states();
            assert_eq!(states.len(), left, "{does}");
            server.restart();
            // The gauge is asked first, before anything can set it right.
            assert_eq!(server.conn().gauge("held"), left as i64, "{does}, preamble {preamble}");
            server.assert_locks_agree();
            assert_eq!(server.lock_states(), states, "{does}, preamble {preamble}");
        }
    }
}

/// CASES 19: a deadline is a moment, never a new full life.
#[test]
fn a_restart_does_not_prolong_a_lock() {
    let server = Server::builder().aof().start();
    let mut deadlines = Vec::new();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        conn.claim_px("short", 700);
        conn.claim_px("long", 60_000);
        deadlines.push(int(&conn.ok(("PEXPIRETIME", "long"))));
    }
    let short_until = int(&server.conn().ok(("PEXPIRETIME", "short")));
    server.stop();
    wait_until("the short locks' deadline", PATIENCE, || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        (now.as_millis() as i64 > short_until + 100).then_some(())
    });
    server.restart();
    for (db, deadline) in [0, 3].into_iter().zip(deadlines) {
        let mut conn = server.conn();
        conn.select(db);
        assert_eq!(conn.list(), ["long"]);
        assert_eq!(int(&conn.ok(("PEXPIRETIME", "long"))), deadline);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "short", "t:short", "PX", 60_000))), 0);
        assert_eq!(conn.int("PRLOCK.RELEASE short t:short"), 0);
        conn.claim("short");
    }
}

/// CASES 43, short form: what was answered is on the disk.
#[test]
fn kill9_under_load_keeps_what_was_answered() {
    let server = Server::builder().aof().start();
    for round in 0..4 {
        let port = server.port();
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                std::thread::spawn(move || {
                    let db = if worker == 0 { 0 } else { 3 };
                    let mut known: BTreeMap<(i64, String), Option<bool>> = BTreeMap::new();
                    let Ok(mut conn) = Conn::open(port, Conn::resp2().set_db(db)) else { return known };
                    for number in 0.. {
                        let key = format!("r{round}w{worker}n{number}");
                        let name = (db, key.clone());
                        known.insert(name.clone(), None);
                        let claim = ("PRLOCK.CLAIM", &key, "PX", 600_000, "TOKEN", &key);
                        match conn.call(claim) {
                            Ok(granted) => assert_ne!(granted, Value::Nil),
                            Err(_) => return known,
                        }
                        known.insert(name.clone(), Some(true));
                        if number % 2 == 0 {
                            known.insert(name.clone(), None);
                            match conn.call(("PRLOCK.RELEASE", &key, &key)) {
                                Ok(released) => assert_eq!(released, Value::Int(1)),
                                Err(_) => return known,
                            }
                            known.insert(name, Some(false));
                        }
                    }
                    known
                })
            })
            .collect();
        let granted = server.conn().gauge("claims_granted");
        wait_until("some load", PATIENCE, || (server.conn().gauge("claims_granted") > granted + 150).then_some(()));
        server.kill9();
        let known: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().expect("no failure")).collect();
        server.restart();
        for ((db, key), is_held) in known {
            // What was sent and not answered can be either.
            let Some(is_held) = is_held else { continue };
            let mut conn = server.conn();
            conn.select(db);
            let renewed = int(&conn.ok(("PRLOCK.RENEW", &key, &key, "PX", 600_000)));
            assert_eq!(renewed, i64::from(is_held), "{key} in db {db}");
        }
        server.assert_locks_agree();
        server.conn().ok(("FLUSHALL",));
    }
}

/// No aux data: once every lock is gone, a server without the module loads the RDB; with a lock it says why it does not.
#[test]
fn an_rdb_without_locks_needs_no_module() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.claim("k");
    conn.ok(("SET", "plain", "x"));
    conn.ok(("PRLOCK.RELEASE", "k", "t:k"));
    conn.ok(("SAVE",));
    server.restart_with(Builder::without_module);
    assert_eq!(bytes(&server.conn().ok(("GET", "plain"))), b"x");

    let server = Server::start();
    server.conn().claim("k");
    server.conn().ok(("SAVE",));
    let failure = server.try_restart_with(Builder::without_module).expect_err("no type, no start");
    assert!(failure.log.contains("prlock-rs"), "{}", failure.log);
}

/// A file that is cut is refused at the start, in order and not by a crash.
#[test]
fn a_cut_rdb_is_refused() {
    let server = Server::start();
    server.conn().claim_px("lock", 3_600_000);
    server.conn().claim_px("more", 3_600_000);
    server.conn().ok(("SAVE",));
    server.stop();
    let path = server.folder().join("dump.rdb");
    let whole = std::fs::read(&path).expect("the RDB");
    let lock = whole.windows(6).position(|part| part == b"t:lock").expect("the token in the file");
    for cut in [10, lock, lock + 3, whole.len() / 2, whole.len() * 3 / 4, whole.len() - 40, whole.len() - 9] {
        std::fs::File::create(&path).and_then(|mut file| file.write_all(&whole[..cut])).expect("write a part");
        let failure = server.try_restart_with(|plan| plan).expect_err("a cut RDB");
        assert!(failure.why.contains("exit status: 1"), "{}", failure.why);
    }
    std::fs::write(&path, &whole).expect("write all");
    server.restart();
    assert_eq!(server.conn().list(), ["lock", "more"]);
}

/// SPEC, The fence: greater after every restart, whether data are left or not.
#[test]
fn fences_rise_over_every_loss_of_data() {
    let server = Server::builder().aof().start();
    let mut last = 0;
    let mut grant = |what: &str| {
        let fence = server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN t STEAL").fence;
        // The same token again and again: what is left of it must not be taken for this grant.
        assert_eq!(server.conn().int("PRLOCK.RELEASE k t"), 1);
        assert!(fence > last, "{what}: {fence} after {last}");
        last = fence;
    };
    grant("at first");
    server.restart();
    grant("a restart");
    server.conn().ok(cmd("FLUSHALL"));
    rewrite_aof(&server);
    server.restart();
    grant("a restart without a trace of a lock");
    server.kill9();
    std::fs::remove_dir_all(server.folder().join("appendonlydir")).expect("lose the append-only file");
    server.restart();
    assert_eq!(server.conn().gauge("last_fence"), 0, "nothing is left");
    grant("a restart with nothing");
}

/// SPEC, The fence: it takes in that of every lock that is loaded, however far ahead of the clock it lies.
#[test]
fn a_fence_ahead_of_the_clock_is_taken_in_wherever_it_comes_from() {
    const HALF_A_DAY_US: u64 = 43_200_000_000;
    for (preamble, what) in [("yes", "an RDB"), ("no", "commands")] {
        let server = Server::builder().aof().config("aof-use-rdb-preamble", preamble).start();
        let mut conn = server.conn();
        let dumper = Dumper::new(&mut conn);
        let ahead = conn.time_ms() as u64 * 1_000 + HALF_A_DAY_US;
        conn.ok(("RESTORE", "ahead", 600_000, dumper.payload(LAST_ENCODING, &Stored::new(ahead))));
        rewrite_aof(&server);
        let replica = server.replica();
        assert_eq!(replica.conn().gauge("last_fence") as u64, ahead, "a full synchronisation");
        server.restart();
        assert_eq!(server.conn().gauge("last_fence") as u64, ahead, "a restart from {what}");
        assert!(server.conn().claim("next") as u64 > ahead, "a restart from {what}");
        replica.conn().ok(cmd("REPLICAOF NO ONE"));
        assert!(replica.conn().claim("next") as u64 > ahead, "a new primary");
    }
}

/// DEBUG RELOAD empties the server on its way. Nothing of that is an end of a lock.
#[test]
fn a_reload_ends_no_lock() {
    let server = Server::start();
    let mut conn = server.conn();
    for key in ["a", "b", "c"] {
        conn.claim(key);
    }
    conn.ok(("RENAME", "c", "d"));
    for _ in 0..2 {
        conn.ok(("DEBUG", "RELOAD"));
        assert_eq!((server.stat("held"), server.stat("deleted"), server.stat("expired")), (3, 0, 0));
        assert_eq!(conn.list(), ["a", "b", "d"]);
    }
    // And what ends before it counts as ever, also right before.
    conn.ok(("DEL", "a"));
    pipeline(["FLUSHALL", "DEBUG RELOAD"]).exec(&mut conn).expect("a flush and a reload");
    assert_eq!((server.stat("held"), server.stat("deleted")), (0, 3));
}
