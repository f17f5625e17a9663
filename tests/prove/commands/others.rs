//! What else a server is asked to do, at random.

use std::sync::atomic::Ordering::Relaxed;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::words::{Call, Seen, blob, key, number, pick, small, token, with, words};
use super::{DATABASES, module};
use crate::support::module_path;

/// A command that changes keys or asks for them.
pub fn on_keys(rng: &mut StdRng, seen: &Seen) -> Call {
    let (a, b, token, soon) = (key(rng), key(rng), token(rng), small(rng, 300));
    let db = rng.random_range(0..DATABASES).to_string().into_bytes();
    match rng.random_range(0..46) {
        0 | 1 => with("DEL", &[&a]),
        2 => with("UNLINK", &[&a, &b]),
        3 => with("SET", &[&a, &token]),
        4 => with("SET string", &[&token, b"PX", b"500"]),
        5 => with("SET", &[&a, &token, b"KEEPTTL", b"GET"]),
        6 | 7 => with("RENAME", &[&a, &b]),
        8 => with("RENAMENX", &[&a, &b]),
        9 | 10 => with("MOVE", &[&a, &db]),
        11 => with("COPY", &[&a, &b, b"DB", &db, b"REPLACE"]),
        12 => with("PEXPIRE", &[&a, &soon]),
        13 => with("PEXPIRE", &[&a, &number(rng), pick(rng, &["NX", "XX", "GT", "LT"]).as_bytes()]),
        14 => with("PEXPIREAT", &[&a, &number(rng)]),
        15 => with("PERSIST", &[&a]),
        16 => with("EXPIRE", &[&a, b"-1"]),
        17 | 18 => with("SELECT", &[&db]),
        19 => with("SWAPDB 0", &[&db]),
        20 => words(pick(rng, &["FLUSHDB", "FLUSHDB ASYNC", "FLUSHALL", "FLUSHALL ASYNC"])),
        21 => with("LPUSH list", &[&a]),
        22 => with("LPUSH", &[&a, &token]),
        23 => with("BLPOP", &[&a, b"0.01"]),
        24 => with("SADD set", &[&a]),
        25 => with("ZADD zset 1", &[&a]),
        26 => with("XADD stream *", &[&a, &b]),
        27 => with("HSET hash", &[&a, &b]),
        28 => with("SUNIONSTORE", &[&a, b"set", &b]),
        29 => with("ZUNIONSTORE", &[&a, b"2", b"zset", &b]),
        30 => with("SORT", &[&a, b"BY", b"k*", b"GET", b"k*", b"STORE", &b]),
        31 => {
            with(pick(rng, &["GETDEL", "GETEX", "GET", "STRLEN", "INCR", "HGETALL", "TYPE", "TOUCH", "EXISTS"]), &[&a])
        }
        32 => with(pick(rng, &["APPEND", "GETSET", "SETNX"]), &[&a, &token]),
        33 => with("LMOVE list", &[&a, b"LEFT", b"RIGHT"]),
        34 => with("DUMP", &[&a]),
        35..38 => module::restore(rng, seen),
        38 => with(pick(rng, &["OBJECT ENCODING", "OBJECT FREQ", "OBJECT IDLETIME", "OBJECT REFCOUNT"]), &[&a]),
        39 => with("MEMORY USAGE", &[&a]),
        40 => with(pick(rng, &["DEBUG OBJECT", "DEBUG DIGEST-VALUE"]), &[&a]),
        41 => words("SCAN 0 TYPE prlock-rs"),
        42 => with("KEYS", &[&blob(rng)]),
        43 => words("RANDOMKEY"),
        44 => with("WATCH", &[&a]),
        _ => with("PTTL", &[&a]),
    }
}

/// A command about connections, users and the server itself.
pub fn on_the_server(rng: &mut StdRng, seen: &Seen) -> Call {
    let (a, has_pauses) = (key(rng), seen.has_pauses.load(Relaxed));
    // Of the clients that came last one or the other is still there.
    let client = seen.client.load(Relaxed).saturating_sub(rng.random_range(0..12)).to_string().into_bytes();
    match rng.random_range(0..44) {
        0 => with("CLIENT KILL TYPE normal SKIPME", &[pick(rng, &["yes", "no"]).as_bytes()]),
        1 | 2 => with("CLIENT KILL ID", &[&client]),
        3 if rng.random_ratio(1, 4) => words(pick(rng, &["CLIENT KILL TYPE replica", "CLIENT KILL TYPE pubsub"])),
        3 => with("CLIENT UNBLOCK", &[&client, b"ERROR"]),
        4 | 5 if !has_pauses => with("CLIENT UNBLOCK", &[&client]),
        6 if has_pauses => with("CLIENT PAUSE", &[&small(rng, 15), pick(rng, &["WRITE", "ALL"]).as_bytes()]),
        7 => words("CLIENT UNPAUSE"),
        8 => with("CLIENT SETNAME", &[&token(rng)]),
        9 | 10 => words(&format!(
            "CLIENT TRACKING {}",
            pick(rng, &["ON", "ON BCAST", "ON BCAST PREFIX k", "ON OPTIN", "OFF"])
        )),
        11 => words(pick(rng, &["CLIENT TRACKING ON NOLOOP", "CLIENT TRACKING ON OPTOUT NOLOOP"])),
        12 => with("CLIENT TRACKING ON REDIRECT", &[&client]),
        13 => words(pick(rng, &["CLIENT CACHING YES", "CLIENT CACHING NO"])),
        14 => words(pick(rng, &["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY ON", "CLIENT NO-EVICT ON"])),
        15 | 16 => words("HELLO 3"),
        17 => words("HELLO 2"),
        18 => words("RESET"),
        19 | 20 => words(pick(rng, &["SUBSCRIBE channel", "PSUBSCRIBE __key*", "SSUBSCRIBE channel", "UNSUBSCRIBE"])),
        21 => words("MONITOR"),
        22 => user(rng),
        23 => words(pick(rng, &["ACL LOG", "ACL LOG RESET", "ACL WHOAMI", "ACL LIST", "AUTH default x"])),
        24 => words(&format!("AUTH {} x", pick(rng, USERS))),
        25 => with("ACL DRYRUN u1 PRLOCK.CLAIM", &[&a, b"PX", b"5"]),
        26 => {
            words(pick(rng, &["SLOWLOG GET 100", "LATENCY LATEST", "MEMORY DOCTOR", "COMMAND COUNT", "MEMORY PURGE"]))
        }
        27 => words(pick(rng, &["INFO everything", "INFO prlock", "INFO commandstats", "CONFIG RESETSTAT", "DBSIZE"])),
        28 => words(&format!("DEBUG SET-ACTIVE-EXPIRE {}", rng.random_range(0..2))),
        29 => words(pick(rng, &["DEBUG SLEEP 0.01", "DEBUG HTSTATS 0", "DEBUG CHANGE-REPL-ID", "DEBUG LISTPACK k1"])),
        30 if rng.random_ratio(1, 8) => words("DEBUG RELOAD"),
        30 => words(pick(rng, &["BGSAVE", "BGREWRITEAOF", "LASTSAVE"])),
        31 | 32 => setting(rng),
        33 => with("CONFIG SET prlock.max-ttl-ms", &[if rng.random_ratio(1, 8) { b"5" } else { b"0" }]),
        34 => with("CONFIG SET maxmemory", &[if rng.random_ratio(1, 8) { b"1" } else { b"0" }]),
        35 => with("CONFIG SET prlock.max-ttl-ms", &[&number(rng), b"prlock.nothing", b"1"]),
        36 => with("COMMAND GETKEYSANDFLAGS PRLOCK.CLAIM", &[&a, b"PX", &number(rng)]),
        37 => words(pick(
            rng,
            &["COMMAND DOCS prlock.claim", "COMMAND INFO prlock.list", "COMMAND LIST FILTERBY MODULE prlock"],
        )),
        38 if rng.random_ratio(1, 20) => words("CONFIG REWRITE"),
        38 => words(pick(rng, &["WAIT 1 5", "WAITAOF 0 1 5", "LOLWUT", "ROLE", "SCRIPT FLUSH"])),
        39 => words(pick(rng, &["MODULE LIST", "MODULE UNLOAD prlock"])),
        40 if rng.random_ratio(1, 8) => load_again(rng),
        41 => words("CLIENT LIST"),
        _ => words("CLIENT ID"),
    }
}

const USERS: &[&str] = &["u1", "u2", "u3"];

/// Users that may do this and that come, change and go, whatever their connections wait for. They may not change users:
/// Redis 7.0 ends at a subscriber that takes its own channels away.
fn user(rng: &mut StdRng) -> Call {
    let name = pick(rng, USERS);
    if rng.random_ratio(1, 8) {
        return words(&format!("ACL DELUSER {name}"));
    }
    let rules = pick(rng, &["+@all", "-@all +prlock.claim", "+@all -prlock.release", "+@all -client", "-@all +@read"]);
    let keys = pick(rng, &["~*", "~k1 ~k2", "%R~k*", "%W~k*", "~nothing", "allchannels"]);
    words(&format!("ACL SETUSER {name} reset on >x {rules} -acl {keys}"))
}

/// Settings that change the paths of what the module asks of the server, and bad values for its own.
fn setting(rng: &mut StdRng) -> Call {
    let bad = with("CONFIG SET prlock.max-ttl-ms", &[&blob(rng)]);
    match rng.random_range(0..10) {
        0 => words(pick(rng, &["CONFIG GET prlock*", "CONFIG GET *"])),
        1 => words(&format!("CONFIG SET notify-keyspace-events {}", pick(rng, &["AKE", "AKEn", "AKEd", "xE", "KA"]))),
        2 => {
            words(&format!("CONFIG SET maxmemory-policy {}", pick(rng, &["allkeys-lru", "volatile-ttl", "noeviction"])))
        }
        3 => words(&format!("CONFIG SET lazyfree-lazy-user-del {}", pick(rng, &["yes", "no"]))),
        4 => words(&format!("CONFIG SET lazyfree-lazy-expire {}", pick(rng, &["yes", "no"]))),
        5 => words(&format!("CONFIG SET activedefrag {}", pick(rng, &["yes", "no"]))),
        6 => words(&format!("CONFIG SET hz {}", pick(rng, &["1", "10", "500"]))),
        7 => words(&format!("CONFIG SET tracking-table-max-keys {}", pick(rng, &["1", "1000000"]))),
        _ => bad,
    }
}

/// A second load, with good and bad settings: refused, whatever they are.
fn load_again(rng: &mut StdRng) -> Call {
    let path = module_path().into_os_string().into_encoded_bytes();
    match rng.random_range(0..3) {
        0 => with("MODULE LOAD", &[&path]),
        1 => with("MODULE LOADEX", &[&path, b"CONFIG", b"prlock.max-ttl-ms", &number(rng)]),
        _ => with("MODULE LOADEX", &[&path, b"CONFIG", b"prlock.nothing", &number(rng), b"ARGS", &blob(rng)]),
    }
}

/// What a replica is asked besides: it refuses to change, and shows what it has.
pub fn on_a_replica(rng: &mut StdRng, seen: &Seen) -> Call {
    match rng.random_range(0..10) {
        0..6 => module::any(rng, seen),
        6 => module::in_a_script(rng, seen),
        7 if rng.random_ratio(1, 500) => words("CLIENT KILL TYPE master"),
        7 => words(pick(rng, &["INFO everything", "CLIENT TRACKING ON", "HELLO 3", "RESET"])),
        8 => words(&format!("SELECT {}", rng.random_range(0..DATABASES))),
        _ => {
            with(pick(rng, &["DUMP", "TYPE", "PTTL", "MEMORY USAGE", "EXISTS", "DEBUG OBJECT", "TOUCH"]), &[&key(rng)])
        }
    }
}
