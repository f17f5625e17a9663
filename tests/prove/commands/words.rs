//! What random commands are made of: keys, numbers, bytes, and what the server has told.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::support::Dumper;

pub type Call = Vec<Vec<u8>>;

/// What clients have seen in replies, for calls that only make sense with it.
pub struct Seen {
    pub dumper: Dumper,
    /// The id of the client that came last.
    pub client: AtomicI64,
    /// Whether clients are paused in this round, or else unblocked as if their time were up. Not both: older servers end
    /// at the unblocking of a paused client (redis/redis#14164, valkey-io/valkey#2111).
    pub has_pauses: AtomicBool,
    fence: AtomicU64,
    /// A token that the server has made.
    token: Mutex<Vec<u8>>,
}

impl Seen {
    pub fn new(dumper: Dumper) -> Self {
        let (client, has_pauses, fence, token) = Default::default();
        Self { dumper, client, has_pauses, fence, token }
    }

    /// Looks for a grant among the bytes of replies: a bulk string and an integer of 16 digits.
    pub fn look(&self, replies: &[u8]) {
        let line = |start: usize| -> &[u8] {
            let rest = &replies[start..];
            &rest[..rest.windows(2).position(|end| end == b"\r\n").unwrap_or(rest.len())]
        };
        if let Some(at) = replies.windows(5).position(|part| part == b"\r\n:17") {
            let digits = String::from_utf8_lossy(line(at + 3)).into_owned();
            digits.parse().into_iter().for_each(|fence| self.fence.store(fence, Relaxed));
        }
        if let Some(at) = replies.windows(5).position(|part| part == b"$32\r\n") {
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = line(at + 5).to_vec();
        }
    }

    pub fn fence(&self) -> u64 {
        self.fence.load(Relaxed)
    }

    pub fn token(&self) -> Vec<u8> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "5",
    "40",
    "1000",
    "60000",
    "86400000",
    "86400001",
    "-1",
    "-0",
    "+5",
    " 5",
    "5 ",
    "05",
    "1.5",
    "1e3",
    "0x10",
    "",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9223372036854775",
    "99999999999999",
    "nan",
    "\0",
];
const TOKENS: &[&str] = &["a", "b", "c", "token-d", "%s%n", "e\0f"];

pub fn pick<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from[rng.random_range(0..from.len())]
}

/// The words of a line, and what follows them.
pub fn with(line: &str, rest: &[&[u8]]) -> Call {
    line.split_whitespace().map(str::as_bytes).chain(rest.iter().copied()).map(<[u8]>::to_vec).collect()
}

pub fn words(line: &str) -> Call {
    with(line, &[])
}

/// One of a few keys, so that calls meet.
pub fn key(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..24) {
        0 => Vec::new(),
        1 => pick(rng, &["list", "hash", "set", "zset", "stream"]).into(),
        2 => b"string".to_vec(),
        3 => b"k\0\xff\r\n%s%n".to_vec(),
        4 => vec![b'k'; rng.random_range(1..3_000)],
        number => format!("k{}", number % 5).into_bytes(),
    }
}

pub fn blob(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..9) {
        0 => (0..rng.random_range(0..40)).map(|_| rng.random()).collect(),
        1 => vec![b'x'; rng.random_range(510..515)],
        2 => b"*a*[^a-z]?\\*[".to_vec(),
        3 => vec![b'*'; rng.random_range(0..200)],
        4 => key(rng),
        5 => vec![b'\0'; rng.random_range(1..20)],
        _ => token(rng),
    }
}

pub fn token(rng: &mut StdRng) -> Vec<u8> {
    pick(rng, TOKENS).into()
}

pub fn number(rng: &mut StdRng) -> Vec<u8> {
    if rng.random_ratio(2, 3) {
        return small(rng, 3_000);
    }
    pick(rng, NUMBERS).into()
}

/// A number from 0 to below `end`.
pub fn small(rng: &mut StdRng, end: u32) -> Vec<u8> {
    rng.random_range(0..end).to_string().into_bytes()
}
