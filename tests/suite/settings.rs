//! The setting `prlock.max-ttl-ms` and how the module is loaded. CASES 14 and 58.

use crate::support::{Server, cmd, items, map, module_path, server_kind, text};

const CLAIM_TTL: &str = "ERR invalid expire time in 'prlock.claim' command";

#[track_caller]
fn cap(server: &Server) -> String {
    text(&map(&server.conn().ok(cmd("CONFIG GET prlock.max-ttl-ms")))["prlock.max-ttl-ms"])
}

/// The default, CONFIG SET, and what CONFIG SET refuses. A change counts from the next call on.
#[test]
fn the_cap_can_be_read_and_set() {
    let server = Server::start();
    let mut conn = server.conn();
    assert_eq!(cap(&server), "86400000");
    conn.ok(cmd("CONFIG SET prlock.max-ttl-ms 5000"));
    assert_eq!(cap(&server), "5000");
    conn.granted("PRLOCK.CLAIM k PX 5000 TOKEN t");
    conn.granted("PRLOCK.CLAIM k EX 5 TOKEN t");
    let claim = format!("{CLAIM_TTL}: above 5000 ms, the cap that prlock.max-ttl-ms sets");
    for line in ["PRLOCK.CLAIM k PX 5001 TOKEN t", "PRLOCK.CLAIM k EX 6", "PRLOCK.CLAIM free PX 5001 BLOCK 1"] {
        assert_eq!(conn.err(cmd(line)), claim, "{line}");
    }
    assert_eq!(
        conn.err(cmd("PRLOCK.RENEW k t PX 5001")),
        "ERR invalid expire time in 'prlock.renew' command: above 5000 ms, the cap that prlock.max-ttl-ms sets"
    );
    // A lower cap is for new deadlines; it takes nothing from those that are.
    conn.ok(cmd("CONFIG SET prlock.max-ttl-ms 1000"));
    assert!(conn.int("PTTL k") > 1_000);
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 1000"), 1);
    for bad in ["-1", "x", "1.5", "''", "9223372036854775808", "-9223372036854775808", "1e3"] {
        let error = conn.err(cmd(&format!("CONFIG SET prlock.max-ttl-ms {bad}")));
        assert!(error.starts_with("ERR"), "{bad}: {error}");
        assert_eq!(cap(&server), "1000", "{bad}");
    }
    // With others in one call all or none are set.
    assert!(conn.call(cmd("CONFIG SET prlock.max-ttl-ms 7000 maxmemory nonsense")).is_err());
    assert_eq!(cap(&server), "1000");
}

/// SPEC: 0 for no cap; then the server's own limit is left.
#[test]
fn zero_is_no_cap() {
    let server = Server::builder().module_args(&["max-ttl-ms", "0"]).start();
    let mut conn = server.conn();
    assert_eq!(cap(&server), "0");
    for ttl in ["PX 90000000", "EX 600000", "PX 9000000000000000", "PX 9223000000000000000"] {
        conn.granted(&format!("PRLOCK.CLAIM k TOKEN t {ttl}"));
        assert!(conn.int("PTTL k") > 86_400_000, "{ttl}");
        assert_eq!(conn.int(&format!("PRLOCK.RENEW k t {ttl}")), 1);
    }
    for ttl in ["PX 9223372036854775807", "EX 9223372036854775", "EX 9223372036854775807"] {
        assert_eq!(conn.err(cmd(&format!("PRLOCK.CLAIM free {ttl}"))), CLAIM_TTL);
    }
    assert_eq!(conn.int("EXISTS free"), 0);
}

/// From redis.conf and from the arguments of loadmodule; the file's line wins, as it does for the server's own settings.
#[test]
fn the_cap_comes_from_the_file_or_the_arguments() {
    let server = Server::builder().config("prlock.max-ttl-ms", "7000").start();
    assert_eq!(cap(&server), "7000");
    let server = Server::builder().module_args(&["max-ttl-ms", "8000"]).start();
    assert_eq!(cap(&server), "8000");
    let server = Server::builder().module_args(&["MAX-TTL-MS", "8000"]).config("prlock.max-ttl-ms", "7000").start();
    assert_eq!(cap(&server), "7000");
    server.conn().ok(cmd("CONFIG SET prlock.max-ttl-ms 6000"));
    server.conn().ok(("CONFIG", "REWRITE"));
    let file = std::fs::read_to_string(server.folder().join("server.conf")).expect("the configuration");
    assert!(file.contains("prlock.max-ttl-ms 6000"), "{file}");
}

/// A server with a bad argument or a bad line refuses to start, with a line in the log that says why.
#[test]
fn bad_settings_at_start_are_refused() {
    for args in [
        &["max-ttl-ms"][..],
        &["max-ttl-ms", "-1"],
        &["max-ttl-ms", "x"],
        &["max-ttl-ms", "1.5"],
        &["max-ttl-ms", "9223372036854775808"],
        &["max-ttl-ms", "5000", "more"],
        &["no-such-setting", "1"],
        &["1"],
    ] {
        let failure = Server::builder().module_args(args).try_start().expect_err("a bad argument");
        assert!(failure.log.contains("prlock: ") && failure.log.contains("max-ttl-ms"), "{args:?}: {failure:?}");
    }
    for value in ["-1", "x", "1.5", "9223372036854775808"] {
        let failure = Server::builder().config("prlock.max-ttl-ms", value).try_start().expect_err("a bad line");
        assert!(failure.log.contains("max-ttl-ms"), "{value}: {failure:?}");
    }
    assert!(Server::builder().config("prlock.no-such-setting", "1").try_start().is_err());
}

/// CASES 58: at run time a bad argument is an error with no residue: the server lives, knows no command of the module,
/// and loads it rightly afterwards.
#[test]
fn a_bad_argument_at_run_time_leaves_nothing() {
    let server = Server::builder().without_module().start();
    let mut conn = server.conn();
    let module = module_path().display().to_string();
    for args in [&["max-ttl-ms", "-1"][..], &["max-ttl-ms"], &["nonsense"], &["max-ttl-ms", "1", "nonsense", "2"]] {
        let mut words = vec!["MODULE", "LOAD", &module];
        words.extend(args);
        assert!(conn.err(&words[..]).starts_with("ERR"), "{args:?}");
        assert!(conn.err(cmd("PRLOCK.INFO k")).starts_with("ERR unknown command"));
        let modules = format!("{:?}", conn.ok(("MODULE", "LIST")));
        assert!(!modules.contains("prlock"), "{modules}");
        assert_eq!(items(&conn.ok(cmd("COMMAND LIST FILTERBY MODULE prlock"))), []);
        assert!(map(&conn.ok(cmd("CONFIG GET prlock.*"))).is_empty());
        // What would call a callback of a module that is gone.
        conn.ok(cmd("SET k v PX 1"));
        let at_ms = conn.time_ms();
        conn.wait_past(at_ms + 1);
        conn.ok(cmd("GET k"));
        conn.ok(("FLUSHALL",));
        conn.ok(cmd("SWAPDB 0 1"));
        server.raw().call(("PING",)).expect("PING");
    }
    conn.ok(("MODULE", "LOAD", &module, "max-ttl-ms", "9000"));
    assert_eq!(cap(&server), "9000");
    conn.granted("PRLOCK.CLAIM k PX 9000");
}

/// CASES 58: the same for settings that MODULE LOADEX gives, which the server hands to the module one by one.
///
/// A name that the module does not have is found by the server after the load, when it tries to unload the module and
/// can't, because of its data type: Redis 7.0 keeps the module, with an error; Valkey ends (valkey-io/valkey#4630).
#[test]
fn bad_values_of_loadex_leave_nothing() {
    let server = Server::builder().without_module().start();
    let mut conn = server.conn();
    let module = module_path().display().to_string();
    for value in ["-1", "x", "1.5", "", "9223372036854775808"] {
        let error = conn.err(("MODULE", "LOADEX", &module, "CONFIG", "prlock.max-ttl-ms", value));
        assert!(error.starts_with("ERR"), "{value}: {error}");
        assert_eq!(items(&conn.ok(cmd("COMMAND LIST FILTERBY MODULE prlock"))), [], "{value}");
        assert!(map(&conn.ok(cmd("CONFIG GET prlock.*"))).is_empty(), "{value}");
        conn.ok(cmd("SET k v"));
        conn.ok(("FLUSHALL",));
    }
    if !server_kind().is_valkey() {
        assert!(conn.err(("MODULE", "LOADEX", &module, "CONFIG", "prlock.nothing", "1")).starts_with("ERR"));
    }
    // Redis 7.0 has it now.
    if conn.call(cmd("PRLOCK.INFO k")).is_err() {
        let arguments = ("ARGS", "max-ttl-ms", "8000");
        conn.ok(("MODULE", "LOADEX", &module, "CONFIG", "prlock.max-ttl-ms", "9000", arguments));
        assert_eq!(cap(&server), "9000", "a setting wins over an argument");
    }
    conn.granted("PRLOCK.CLAIM k PX 5000");
    assert_eq!(conn.listed(), ["k"]);
}

/// A load that is refused late, when the module has made itself a context already, gives that back.
#[test]
fn a_refused_load_costs_no_memory() {
    let server = Server::builder().without_module().start();
    let mut conn = server.conn();
    let module = module_path().display().to_string();
    let mut used_bytes_after = |loads: u32| {
        for _ in 0..loads {
            conn.err(("MODULE", "LOADEX", &module, "CONFIG", "prlock.max-ttl-ms", "-1"));
        }
        server.info_number("used_memory")
    };
    let before = used_bytes_after(3);
    let grown = used_bytes_after(30) - before;
    // The server itself forgets the data type each time, a few hundred bytes.
    assert!(grown < 30 * 3_000, "{grown} bytes in thirty refused loads");
}

/// CASES 58: loading twice is an error, and the first one goes on as if nothing had been.
#[test]
fn loading_twice_is_an_error() {
    let server = Server::builder().module_args(&["max-ttl-ms", "9000"]).start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 9000 TOKEN t HOLDER h");
    let module = module_path().display().to_string();
    for _ in 0..3 {
        assert!(conn.err(("MODULE", "LOAD", &module)).starts_with("ERR"));
        assert!(conn.err(("MODULE", "LOAD", &module, "max-ttl-ms", "1")).starts_with("ERR"));
        assert!(conn.err(("MODULE", "UNLOAD", "prlock")).starts_with("ERR"));
    }
    assert_eq!(cap(&server), "9000");
    assert_eq!(conn.listed(), ["k"]);
    assert_eq!(conn.int("PRLOCK.RENEW k t PX 9000"), 1);
    conn.ok(("DEL", "k"));
    assert_eq!(conn.listed(), [""; 0]);
    let refused = server.waiter(cmd("BLPOP nothing 0"));
    refused.disconnect();
    assert_eq!(server.info_number("prlock_deleted"), 1);
}

/// SPEC: a warning in the log, at load and when the setting changes, if the server may evict locks.
#[test]
fn a_policy_that_may_evict_locks_is_warned_of() {
    const WARNING: &str = "prlock: maxmemory-policy lets the server evict locks";
    let warnings = |server: &Server| server.log().matches(WARNING).count();
    let server = Server::start();
    assert_eq!(warnings(&server), 0);
    let mut expected = 0;
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-random", "allkeys-lfu"] {
        server.conn().ok(("CONFIG", "SET", "maxmemory-policy", policy));
        expected += 1;
        assert_eq!(warnings(&server), expected, "{policy}");
        // Another setting is no reason to say it again.
        server.conn().ok(cmd("CONFIG SET maxmemory-samples 7"));
    }
    server.conn().ok(cmd("CONFIG SET maxmemory-policy noeviction"));
    assert_eq!(warnings(&server), expected);
    let server = Server::builder().config("maxmemory-policy", "volatile-lru").start();
    assert_eq!(warnings(&server), 1);
}
