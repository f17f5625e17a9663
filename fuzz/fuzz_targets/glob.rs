//! Patterns: the same answer as a slow matcher that does by recursion what the rules say, and no panic, for any pattern and
//! key.
#![no_main]
#![allow(dead_code, reason = "the files are compiled whole")]

#[path = "../../src/locks/glob.rs"]
mod glob;

use libfuzzer_sys::fuzz_target;

/// Beyond these the slow matcher takes too long.
const PATTERN_MAX: usize = 24;
const KEY_MAX: usize = 24;

fuzz_target!(|input: (&[u8], &[u8])| {
    let (pattern, key) = input;
    let found = glob::Glob::new(pattern).matches(key);
    if pattern.len() <= PATTERN_MAX && key.len() <= KEY_MAX && pattern.iter().filter(|byte| **byte == b'*').count() < 6 {
        let due = if pattern == b"*" { true } else if key.is_empty() { pattern.is_empty() } else { slow(pattern, key) };
        assert_eq!(found, due, "{:?} against {:?}", pattern.escape_ascii().to_string(), key.escape_ascii().to_string());
    }
});

/// Whether the whole of `key` matches, by the rules at the head of `glob.rs`.
fn slow(pattern: &[u8], key: &[u8]) -> bool {
    match pattern {
        [] => key.is_empty(),
        [b'*', rest @ ..] => (0..=key.len()).any(|taken| slow(rest, &key[taken..])),
        _ => {
            let Some((first, key_rest)) = key.split_first() else { return false };
            let (matches, rest) = one(pattern, *first);
            matches && slow(rest, key_rest)
        }
    }
}

/// Whether the head of the pattern matches the byte, and what comes behind that head.
fn one(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    match pattern {
        [b'?', rest @ ..] => (true, rest),
        [b'\\', escaped, rest @ ..] => (*escaped == byte, rest),
        [b'[', rest @ ..] => class(rest, byte),
        [first, rest @ ..] => (*first == byte, rest),
        [] => (false, pattern),
    }
}

fn class(mut rest: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = &rest[1..];
    }
    let signed = |byte: u8| byte as core::ffi::c_char;
    let mut found = false;
    loop {
        match rest {
            [] => return (found != negated, rest),
            [b'\\', escaped, behind @ ..] => {
                found |= *escaped == byte;
                rest = behind;
            }
            [b']', behind @ ..] => return (found != negated, behind),
            [from, b'-', to, behind @ ..] => {
                let (low, high) = (signed(*from).min(signed(*to)), signed(*from).max(signed(*to)));
                found |= (low..=high).contains(&signed(byte));
                rest = behind;
            }
            [single, behind @ ..] => {
                found |= *single == byte;
                rest = behind;
            }
        }
    }
}
