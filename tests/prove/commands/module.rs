//! Random calls of the module's own commands.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::words::{Call, Seen, blob, key, number, pick, small, token, with};
use crate::support::{ENCODINGS, Stored};

const COMMANDS: &[&str] =
    &["PRLOCK.CLAIM", "PRLOCK.RENEW", "PRLOCK.RELEASE", "PRLOCK.INFO", "PRLOCK.LIST", "PRLOCK.REVOKE", "PRLOCK.APPLY"];
const OPTIONS: &[&str] = &[
    "EX", "PX", "TOKEN", "HOLDER", "BLOCK", "STEAL", "STEALIF", "LINGER", "FENCE", "MATCH", "AFTER", "COUNT", "ex",
    "pX", "NX",
];
const SCRIPTS: &[&str] = &[
    "return redis.pcall(unpack(ARGV))",
    "#!lua flags=allow-oom,allow-stale\nreturn redis.pcall(unpack(ARGV))",
    "#!lua flags=no-writes\nreturn redis.pcall(unpack(ARGV))",
    "redis.setresp(3) return redis.pcall(unpack(ARGV))",
    "redis.call('SET', 'string', 'a') local r = redis.pcall(unpack(ARGV)) redis.call('DEL', 'k1') return r",
    "redis.pcall(unpack(ARGV)) redis.pcall('SELECT', '1') return redis.call(unpack(ARGV))",
    // The module's command in the middle of others of its own: what it hands on meets what the script takes away.
    "redis.pcall('PRLOCK.CLAIM', 'k2', 'PX', '60000', 'TOKEN', 'a', 'LINGER', '0') local r = redis.pcall(unpack(ARGV)) \
     redis.pcall('RENAME', 'k2', 'k3') redis.pcall('PRLOCK.RELEASE', 'k3', 'a') return r",
];

/// The library of functions that [`in_a_script`] calls.
pub const LIBRARY: &str = "#!lua name=fuzz\n\
    redis.register_function('run', function(keys, argv) return redis.pcall(unpack(argv)) end)\n\
    redis.register_function{function_name='look', flags={'no-writes'}, \
    callback=function(keys, argv) return redis.pcall(unpack(argv)) end}";

/// A call of one of the module's commands.
pub fn any(rng: &mut StdRng, seen: &Seen) -> Call {
    if rng.random_ratio(3, 5) { plausible(rng, seen) } else { wild(rng) }
}

/// A call that has good chances.
fn plausible(rng: &mut StdRng, seen: &Seen) -> Call {
    let (key, token) = (key(rng), if rng.random_ratio(1, 6) { seen.token() } else { token(rng) });
    let mut ttl = vec![b"PX".to_vec(), rng.random_range(1..2_000).to_string().into_bytes()];
    if rng.random_ratio(1, 6) {
        ttl = with("EX", &[b"1"]);
    }
    let fence = seen.fence().wrapping_add(rng.random_range(0..2)).to_string().into_bytes();
    let fenced = rng.random_ratio(1, 4);
    match rng.random_range(0..11) {
        0..5 => claim(rng, key, token, ttl, fence),
        5 | 6 if fenced => with("PRLOCK.RELEASE", &[&key, &token, b"FENCE", &fence]),
        5 | 6 => with("PRLOCK.RELEASE", &[&key, &token]),
        7 => {
            let mut call = with("PRLOCK.RENEW", &[&key, &token]);
            call.extend(ttl);
            if fenced {
                call.extend([b"FENCE".to_vec(), fence]);
            }
            call
        }
        8 => with("PRLOCK.REVOKE", &[&blob(rng)]),
        9 => with("PRLOCK.INFO", &[&key]),
        _ => list(rng),
    }
}

fn claim(rng: &mut StdRng, key: Vec<u8>, token: Vec<u8>, ttl: Call, fence: Vec<u8>) -> Call {
    let mut options = vec![ttl];
    if rng.random_ratio(2, 3) {
        options.push(vec![b"TOKEN".to_vec(), token]);
    }
    if rng.random_ratio(1, 2) {
        options.push(vec![b"HOLDER".to_vec(), blob(rng)]);
    }
    if rng.random_ratio(1, 4) {
        options.push(vec![b"LINGER".to_vec(), small(rng, 100)]);
    }
    match rng.random_range(0..6) {
        0 | 1 => options.push(vec![b"BLOCK".to_vec(), small(rng, 25)]),
        2 => options.push(vec![b"STEAL".to_vec()]),
        3 => options.push(vec![b"STEALIF".to_vec(), fence]),
        _ => {}
    }
    let mut call = with("PRLOCK.CLAIM", &[&key]);
    while !options.is_empty() {
        call.extend(options.swap_remove(rng.random_range(0..options.len())));
    }
    call
}

fn list(rng: &mut StdRng) -> Call {
    let mut call = with("PRLOCK.LIST", &[]);
    for option in ["MATCH", "HOLDER", "AFTER"] {
        if rng.random_ratio(1, 3) {
            call.extend([option.into(), blob(rng)]);
        }
    }
    if rng.random_ratio(1, 3) {
        call.extend([b"COUNT".to_vec(), rng.random_range(1..5).to_string().into_bytes()]);
    }
    call
}

/// Any arguments to any command.
fn wild(rng: &mut StdRng) -> Call {
    let mut call = vec![pick(rng, COMMANDS).into()];
    if rng.random_ratio(4, 5) {
        call.push(key(rng));
    }
    let many = if rng.random_ratio(1, 100) { 2_000 } else { 10 };
    for _ in 0..rng.random_range(0..many) {
        call.push(match rng.random_range(0..3) {
            0 => pick(rng, OPTIONS).into(),
            1 => number(rng),
            _ => blob(rng),
        });
    }
    call
}

/// A call of the module from a script or a function.
pub fn in_a_script(rng: &mut StdRng, seen: &Seen) -> Call {
    let mut call = match rng.random_range(0..10) {
        0 => with("FCALL run 0", &[]),
        1 => with("FCALL_RO look 0", &[]),
        2 => with("EVAL_RO", &[SCRIPTS[0].as_bytes(), b"0"]),
        _ => with("EVAL", &[pick(rng, SCRIPTS).as_bytes(), b"0"]),
    };
    call.extend(any(rng, seen));
    call
}

/// A lock's payload, as it was written or changed a little, with the right checksum: so it reaches the decoder.
pub fn restore(rng: &mut StdRng, seen: &Seen) -> Call {
    let mut stored = Stored::new(seen.fence().max(1));
    stored.token = token(rng);
    stored.holder = blob(rng);
    stored.linger_ms = rng.random_range(-1..50);
    stored.change = rng.random_range(0..6);
    if rng.random_ratio(1, 8) {
        stored.fence = rng.random();
    }
    let encoding = ENCODINGS[rng.random_range(0..ENCODINGS.len())];
    let mut value = stored.form(encoding);
    if rng.random_ratio(1, 2) {
        change(rng, &mut value);
    }
    let mut object =
        seen.dumper.object(if rng.random_ratio(1, 20) { rng.random_range(0..4) } else { encoding }, &value);
    if rng.random_ratio(1, 4) {
        // The first byte says which type the rest is: other types' decoders are the server's own matter.
        let first = object.remove(0);
        change(rng, &mut object);
        object.insert(0, first);
    }
    let mut payload = seen.dumper.sealed(&object);
    if rng.random_ratio(1, 8) {
        change(rng, &mut payload);
    }
    let mut call = with("RESTORE", &[&key(rng), &small(rng, 3_000), &payload, b"REPLACE"]);
    if rng.random_ratio(1, 8) {
        call.push(b"ABSTTL".to_vec());
    }
    call
}

fn change(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..5) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, rng.random()),
            _ => bytes.truncate(at),
        }
    }
}
