//! The module as it is, in a server small enough to live here: commands with any arguments, between whatever a server does
//! to keys and clients. Nothing crashes, leaks or is used after its end; each call has one whole reply; what is no valid call
//! is an error that changes nothing, and everything else is none; LIST says what lies in the keyspace; fences rise.
//!
//! An input is lines of words: a letter (see [`step`]), and what it needs.
#![no_main]
#![allow(dead_code, reason = "the module is compiled whole, and so is the server")]

#[path = "../../src/changes/mod.rs"]
mod changes;
#[path = "../../src/commands/mod.rs"]
mod commands;
#[path = "../fake/mod.rs"]
mod fake;
#[path = "../../src/locks/mod.rs"]
mod locks;
#[path = "../../src/server/mod.rs"]
mod server;

use std::cell::Cell;
use std::sync::Once;

use fake::{Reply, Value};
use libfuzzer_sys::fuzz_target;
use locks::glob::Glob;
use locks::number::parse_i64;
use locks::{Bytes, codec, stored};

static LOAD: Once = Once::new();

thread_local! {
    static GREATEST_FENCE: Cell<i64> = const { Cell::new(0) };
    static CAP_MS: Cell<i64> = const { Cell::new(0) };
    static IN_MULTI: Cell<bool> = const { Cell::new(false) };
    static IS_REPLICA: Cell<bool> = const { Cell::new(false) };
}

const CAP_MS_DEFAULT: i64 = 86_400_000;

fuzz_target!(|input: &[u8]| {
    LOAD.call_once(fake::load);
    fake::set_clock();
    CAP_MS.set(CAP_MS_DEFAULT);
    IN_MULTI.set(false);
    IS_REPLICA.set(false);
    for line in input.split(|byte| *byte == b'\n').take(60) {
        if let Some((letter, rest)) = line.split_first() {
            let words: Vec<&[u8]> = rest.split(|byte| *byte == b' ').collect();
            step(*letter, &words);
        }
    }
    fake::clear();
});

fn step(letter: u8, words: &[&[u8]]) {
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let number = |index: usize| parse_i64(word(index)).unwrap_or_default();
    let small = |index: usize| usize::try_from(number(index)).unwrap_or_default();
    let soon_ms = |index: usize| number(index).clamp(-1_000, 1_000_000);
    let is_replica = IS_REPLICA.get();
    match letter {
        // A replica's clients write nothing; what it does comes from its primary.
        b'C' if !is_replica => claim(words),
        b'N' if !is_replica => plain(b"PRLOCK.RENEW", words, 4, is_valid_renewal),
        b'R' if !is_replica => plain(b"PRLOCK.RELEASE", words, 2, is_valid_release),
        b'V' if !is_replica => {
            plain(b"PRLOCK.REVOKE", words, 1, |words| words.len() == 1 && (1..=512).contains(&words[0].len()))
        }
        b'I' => plain(b"PRLOCK.INFO", words, 1, |_| true),
        b'L' => list(words),
        b'A' => apply(word(0), word(1)),
        b'd' => drop(fake::delete(0, word(0))),
        b's' => fake::put(word(0), Value::Text(word(1).to_vec()), -1),
        b'o' => fake::put(word(0), Value::Other, -1),
        b'm' => fake::rename(word(0), word(1), 0),
        b'M' => fake::rename(word(0), word(1), 1),
        b'x' => fake::expire(word(0), Some(soon_ms(1).max(0))),
        b'p' => fake::expire(word(0), None),
        b'f' => fake::flush(),
        b'w' => fake::swap(),
        b'u' => fake::select(small(0)),
        b't' => {
            fake::advance_ms(soon_ms(0).max(0));
            fake::fire();
        }
        b'k' => fake::disconnect(small(0)),
        b'b' => fake::unblock(small(0)),
        b'c' => fake::reconnect(),
        b'.' => fake::turn(),
        b'g' => {
            IN_MULTI.set(!IN_MULTI.get());
            fake::set_multi(IN_MULTI.get());
        }
        b'r' => {
            IS_REPLICA.set(!is_replica);
            IN_MULTI.set(false);
            fake::set_replicated(!is_replica);
        }
        b'B' => restore(word(0), word(1), number(2)),
        b'D' => dump(word(0), word(1)),
        b'e' => {
            let ms = number(0);
            if fake::set_cap_ms(ms) {
                CAP_MS.set(ms);
            }
            assert_eq!(ms >= 0, CAP_MS.get() == ms);
        }
        _ => {}
    }
}

/// Runs a command whose arguments are valid or not; an error changes nothing.
fn run(args: &[&[u8]], is_valid: bool) -> Option<Vec<Reply>> {
    let (before, streamed) = (fake::keyspace(), fake::streamed());
    let reply = fake::call(args);
    let error = match reply.as_deref() {
        Some([Reply::Error(text)]) => Some(text.clone()),
        _ => None,
    };
    let refuses_arguments = error.as_ref().is_some_and(|text| text.starts_with("ERR "));
    let shown = || args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(refuses_arguments, !is_valid, "{}: {reply:?}", shown());
    if refuses_arguments {
        assert_eq!((fake::keyspace(), fake::streamed()), (before, streamed), "{}", shown());
    }
    reply
}

fn plain(name: &[u8], words: &[&[u8]], least: usize, is_valid: impl Fn(&[&[u8]]) -> bool) {
    // The server itself refuses a wrong number of arguments.
    let is_fixed = name == b"PRLOCK.INFO" || name == b"PRLOCK.REVOKE";
    if words.len() < least || is_fixed && words.len() != least {
        return;
    }
    let args: Vec<&[u8]> = std::iter::once(name).chain(words.iter().copied()).collect();
    let reply = run(&args, is_valid(words));
    assert!(reply.is_some(), "only a claim waits");
}

fn claim(words: &[&[u8]]) {
    if words.len() < 3 {
        return;
    }
    let args: Vec<&[u8]> = std::iter::once(&b"PRLOCK.CLAIM"[..]).chain(words.iter().copied()).collect();
    let options = Options::read(&words[1..], CLAIM);
    let is_valid = options.as_ref().is_some_and(|options| {
        let conflicts = ["BLOCK", "STEAL", "STEALIF"].iter().filter(|name| options.has(name)).count();
        conflicts <= 1
            && options.has_one_ttl()
            && options.number("STEALIF").is_none_or(|number| number.is_some())
            && ["BLOCK", "LINGER"].iter().all(|name| options.number(name).is_none_or(|ms| ms.is_some_and(|ms| ms >= 0)))
            && options.get("TOKEN").is_none_or(|token| (1..=512).contains(&token.len()))
            && options.get("HOLDER").is_none_or(|holder| holder.len() <= 512)
    });
    let held = held(words[0]);
    let Some(reply) = run(&args, is_valid) else {
        assert!(is_valid && options.is_some_and(|options| options.has("BLOCK")) && !IN_MULTI.get());
        return;
    };
    if let [Reply::Array(2), Reply::Bytes(token), Reply::Int(fence)] = &reply[..] {
        let is_again = held.is_some_and(|(held, of)| held == *token && of == *fence);
        assert!(is_again || *fence > GREATEST_FENCE.get(), "a fence that did not rise");
        GREATEST_FENCE.set(GREATEST_FENCE.get().max(*fence));
    }
}

/// Token and fence of the lock under a name.
fn held(name: &[u8]) -> Option<(Vec<u8>, i64)> {
    fake::keyspace().get(name)?;
    let (saved, mut room) = (fake::dump(name)?, Bytes::new());
    let grant = stored::decode(&saved, &mut room).expect("what was saved");
    Some((grant.token.to_vec(), grant.fence as i64))
}

fn is_valid_renewal(words: &[&[u8]]) -> bool {
    let options = Options::read(&words[2..], &[("EX", true), ("PX", true), ("FENCE", true)]);
    options.is_some_and(|options| options.has_one_ttl() && options.number("FENCE").is_none_or(|fence| fence.is_some()))
        && (1..=512).contains(&words[1].len())
}

fn is_valid_release(words: &[&[u8]]) -> bool {
    let options = Options::read(&words[2..], &[("FENCE", true)]);
    options.is_some_and(|options| options.number("FENCE").is_none_or(|fence| fence.is_some()))
        && (1..=512).contains(&words[1].len())
}

fn list(words: &[&[u8]]) {
    // A letter alone leaves one empty word.
    let words = if words == [b""] { &[] } else { words };
    let args: Vec<&[u8]> = std::iter::once(&b"PRLOCK.LIST"[..]).chain(words.iter().copied()).collect();
    let options = Options::read(words, &[("MATCH", true), ("HOLDER", true), ("AFTER", true), ("COUNT", true)]);
    let is_valid = options.as_ref().is_some_and(|options| {
        options.number("COUNT").is_none_or(|count| count.is_some_and(|count| count > 0))
            && options.get("HOLDER").is_none_or(|holder| holder.len() <= 512)
    });
    let reply = run(&args, is_valid).expect("a list does not wait");
    let (true, Some(options)) = (is_valid, options) else { return };
    let mut due = Vec::new();
    for (name, entry) in fake::keyspace() {
        // The ACL of the one user there is.
        let is_readable = !name.starts_with(b"secret");
        let is_behind = options.get("AFTER").is_none_or(|after| &name[..] > after);
        let matches = options.get("MATCH").is_none_or(|pattern| Glob::new(pattern).matches(&name));
        if matches!(entry.value, Value::Lock(_)) && is_readable && is_behind && matches {
            let (saved, mut room) = (fake::dump(&name).expect("a lock"), Bytes::new());
            let grant = stored::decode(&saved, &mut room).expect("what was saved");
            if options.get("HOLDER").is_none_or(|holder| holder == grant.holder) {
                due.push((name, grant.fence as i64));
            }
        }
    }
    due.truncate(options.number("COUNT").flatten().map_or(usize::MAX, |count| count as usize));
    let listed: Vec<(Vec<u8>, i64)> = reply[1..]
        .chunks(19)
        .map(|lock| match lock {
            [Reply::Map(9), _, Reply::Bytes(name), _, _, _, Reply::Int(fence), ..] => (name.clone(), *fence),
            other => panic!("no lock: {other:?}"),
        })
        .collect();
    assert_eq!(listed, due);
}

/// The internal command: only the primary's stream may use it, and it says yes or that the bytes are broken.
fn apply(name: &[u8], state: &[u8]) {
    let state = unescaped(state);
    let said = codec::decode_said(&state);
    if let (true, Some(codec::Said::Lock(decoded))) = (IS_REPLICA.get(), said) {
        GREATEST_FENCE.set(GREATEST_FENCE.get().max(decoded.grant.fence as i64));
    }
    run(&[b"PRLOCK.APPLY", name, &state], IS_REPLICA.get() && said.is_some());
}

/// RESTORE on a primary: bytes that are a lock, and whose fence is not of another time, are taken; no others.
fn restore(name: &[u8], payload: &[u8], encoding: i64) {
    let payload = unescaped(payload);
    let encoding = i32::try_from(encoding).unwrap_or(-1);
    let fence = match encoding {
        0 => codec::decode(&payload).map(|decoded| decoded.grant.fence),
        1 => stored::decode(&payload, &mut Bytes::new()).map(|grant| grant.fence),
        _ => None,
    };
    let day_us = 86_400_000_000;
    let now_us = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    let is_taken = fake::restore(name, &payload, encoding);
    match fence {
        None => assert!(!is_taken),
        Some(fence) if IS_REPLICA.get() || fence < now_us + day_us => assert!(is_taken),
        Some(fence) => assert!(!is_taken || fence < now_us + day_us + 10_000_000),
    }
    if is_taken {
        GREATEST_FENCE.set(GREATEST_FENCE.get().max(fence.expect("a lock") as i64));
    }
}

/// A lock's payload is restored as the same.
fn dump(name: &[u8], copy: &[u8]) {
    let Some(saved) = fake::dump(name) else { return };
    assert!(fake::restore(copy, &saved, 1));
    assert_eq!(fake::dump(copy), Some(saved));
}

/// Payloads are written in hex where a line could not hold them; anything else stands for itself.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let digits = word.strip_prefix(b"#").unwrap_or_default();
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    match bytes.collect::<Option<Vec<u8>>>() {
        Some(bytes) if rest.is_empty() && !bytes.is_empty() => bytes,
        _ => word.to_vec(),
    }
}

/// Options and whether a value follows.
type Known = &'static [(&'static str, bool)];
const CLAIM: Known = &[
    ("EX", true),
    ("PX", true),
    ("TOKEN", true),
    ("HOLDER", true),
    ("BLOCK", true),
    ("STEAL", false),
    ("STEALIF", true),
    ("LINGER", true),
];

/// A reading of the options that shares nothing with the module's.
struct Options<'a>(Vec<(&'static str, &'a [u8])>);

impl<'a> Options<'a> {
    fn read(words: &[&'a [u8]], known: Known) -> Option<Self> {
        let mut found = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, has_value) = known.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))?;
            let value = if *has_value { *words.next()? } else { &[][..] };
            if found.iter().any(|(other, _)| other == name) {
                return None;
            }
            found.push((*name, value));
        }
        Some(Self(found))
    }

    fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// None without the option, Some(None) if its value is no number.
    fn number(&self, name: &str) -> Option<Option<i64>> {
        self.get(name).map(|value| {
            std::str::from_utf8(value).ok()?.parse().ok().filter(|number: &i64| number.to_string().as_bytes() == value)
        })
    }

    /// Exactly one of EX and PX, which the server can store and the cap allows.
    fn has_one_ttl(&self) -> bool {
        let (value, unit_ms) = match (self.number("EX"), self.number("PX")) {
            (Some(value), None) => (value, 1_000),
            (None, Some(value)) => (value, 1),
            _ => return false,
        };
        let ttl_ms = value.map(|value| i128::from(value) * unit_ms);
        let now_ms = i128::from(fake::now_ms());
        ttl_ms.is_some_and(|ttl_ms| {
            ttl_ms > 0
                && ttl_ms + now_ms <= i128::from(i64::MAX)
                && (CAP_MS.get() == 0 || ttl_ms <= i128::from(CAP_MS.get()))
        })
    }
}
