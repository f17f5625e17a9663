//! Keys, tokens and holders: the same for every contender.

use std::fmt::Write;

/// The lifetime asked for: longer than any run.
pub const TTL_MS: &str = "3600000";

/// A prime that divides no power of ten, so that its multiples visit every number below one exactly once.
const STRIDE: usize = 7_368_787;

/// A key of 31 bytes. Hundreds of neighbours share all but the last two digits.
pub fn key(number: usize) -> String {
    format!("lock:order-processing:{number:09}")
}

/// A token as people make them: 32 hex digits. The last four say who holds it, since a plain string has no other place
/// for that.
pub fn token(number: usize, holder_number: usize) -> String {
    let mut text = String::with_capacity(32);
    write!(text, "{:016x}", scramble(number)).expect("write to a string");
    write!(text, "{:012x}", scramble(number + STRIDE) >> 16).expect("write to a string");
    write!(text, "{holder_number:04x}").expect("write to a string");
    text
}

/// A label of 20 bytes.
pub fn holder(number: usize) -> String {
    format!("app-7f3c:worker-{number:04}")
}

/// The numbers below `count`, which is a power of ten or ten times a smaller number, in an order in which neighbours lie
/// far apart: locks do not come sorted.
pub fn scattered(count: usize) -> impl Iterator<Item = usize> {
    assert!(count.is_multiple_of(10) && !count.is_multiple_of(STRIDE), "{count}");
    (0..count).map(move |number| number * STRIDE % count)
}

/// The keys of these numbers.
pub fn scattered_keys(count: usize) -> impl Iterator<Item = String> {
    scattered(count).map(key)
}

/// A fixed number that looks like a random one.
fn scramble(number: usize) -> u64 {
    let mut x = (number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
