//! The glob of the KEYS command, over bytes.
//!
//! A user who filters locks by a pattern expects the answer KEYS gives for the same pattern and the same keys, the odd
//! corners included. The server's own matcher is not part of the module API, so its rules are written down here:
//!
//! | in the pattern | matches |
//! |----------------|---------|
//! | `*`            | any run of bytes, also none |
//! | `?`            | one byte, whichever |
//! | `\x`           | the byte `x`; a `\` that ends the pattern stands for itself |
//! | `[…]`          | one byte out of the class |
//! | `[^…]`         | one byte that is not in the class |
//! | any other byte | itself, also NUL, `]` and bytes over 127 |
//!
//! Inside a class, taken from the left and the first rule that fits:
//!
//! 1. `\x` is the byte `x`, so `[\]]` holds a `]`. It never starts a range: `[\a-z]` holds `a`, `-` and `z`.
//! 2. `]` ends the class, also as its first byte: `[]` holds nothing and never matches, `[^]` matches like `?`.
//! 3. `x-y` is a range, its ends in either order. `y` is taken as it is, even if it is a `]` (`[a-]` is then not
//!    closed yet) or a `\`.
//! 4. Any other byte is itself, among them a `^` that is not the first, and a `\` or a `-` with too little after it.
//!
//! A class that is not closed reaches to the end of the pattern and counts as if it were closed there. So `[^` alone
//! matches like `?`, and `[` alone never matches.
//!
//! A range compares bytes as the server's C compiler compares `char`: signed on x86-64, where `[a-\xff]` reaches from
//! -1 to 97 and `b` is outside, unsigned on 64-bit ARM Linux. [`c_char`] follows the same platforms.
//!
//! # Where the servers themselves differ
//!
//! The patterns for which a server may answer something else than this file:
//!
//! - The matchers of the servers recurse at every run of `*` that has something after it. Those with the fix for
//!   CVE-2024-31228 give up more than 1000 levels down and say that the key does not match. (Seen in Redis 8.2, Valkey
//!   8.1 and 9.1 and in Debian's 7.0.15; the 7.0.15 of the project itself has no limit.) Here nothing recurses and
//!   there is no limit: a pattern with more than 1000 runs of `*` gets the answer that its rules give.
//! - The matcher of the servers says that no pattern but the empty one matches the empty key, not even `*`. KEYS and
//!   SCAN, however, do not ask it for a pattern that is exactly `*`, and return every key. The answer here is theirs:
//!   `*` matches the empty key, and `**` does not.
//!
//! The servers also stop early when the part of the pattern after a `*` fits nowhere in the rest of the key: an earlier
//! `*` that takes more bytes only leaves less for that part. That changes their running time and no answer. The loop
//! below rests on the same fact when it goes back to the last `*` only.

use core::ffi::c_char;

/// A pattern with the meaning that KEYS gives it.
///
/// Every sequence of bytes is a pattern, the empty one included, so there is nothing to compile and nothing to refuse:
/// no function of this type fails or panics. The value is only a reference to the pattern.
#[derive(Clone, Copy, Debug)]
pub struct Glob<'p> {
    pattern: &'p [u8],
}

impl<'p> Glob<'p> {
    /// Takes the bytes of a pattern as the client sent them, escapes and all. Constant time; never fails.
    pub const fn new(pattern: &'p [u8]) -> Self {
        Self { pattern }
    }

    /// Whether KEYS with this pattern would return this key.
    ///
    /// The whole key has to match, not a part of it. Takes time in the length of the pattern times the length of the
    /// key at the worst, constant stack and no heap; never fails.
    pub fn matches(&self, key: &[u8]) -> bool {
        self.run(key, || {})
    }

    /// The longest prefix known to be in every key that matches, without escapes: the place in an ordered index where
    /// the keys to look at begin.
    ///
    /// It reaches to the first thing in the pattern that can stand for more than one byte. An escape is the byte it
    /// stands for, and so is a class of one byte: `a\*[?]b*` gives `a*?b`. A pattern that starts with a wildcard gives
    /// the empty prefix, which every key has. If nothing can match (`a[]b`), the prefix is what comes before (`a`).
    ///
    /// Never longer than the pattern; one allocation of that order, so take it once per call. Never fails.
    pub fn literal_head(&self) -> Vec<u8> {
        self.elements().map_while(|e| e.only_byte()).collect()
    }

    /// Whether the pattern has one meaning only: then exactly one key matches, and [`literal_head`] is that key.
    ///
    /// True for the empty pattern, whose only key is the empty one. Time in the length of the pattern; never fails.
    ///
    /// [`literal_head`]: Self::literal_head
    pub fn is_literal(&self) -> bool {
        self.elements().all(|e| e.only_byte().is_some())
    }

    const fn elements(&self) -> Elements<'p> {
        Elements { rest: self.pattern }
    }

    /// [`matches`](Self::matches), with a call of `step` before each element that is looked at. The tests count them.
    fn run(&self, key: &[u8], mut step: impl FnMut()) -> bool {
        // KEYS answers this one without its matcher, which would not give it the empty key.
        if self.pattern == b"*" {
            return true;
        }
        if key.is_empty() {
            return self.pattern.is_empty();
        }

        let mut elements = self.elements();
        let mut key = key;
        // The elements after the last `*`, and the part of the key where they are to be tried next. Every element but
        // `*` takes exactly one byte, so once a `*` is reached an earlier one has nothing to gain from taking more.
        let mut retry: Option<(Elements, &[u8])> = None;
        loop {
            let Some((&byte, key_after)) = key.split_first() else {
                // What is left of the pattern has to do without a byte. If it cannot, a later start will not help:
                // it leaves even fewer bytes for the same elements.
                return elements.rest.iter().all(|&b| b == b'*');
            };
            step();
            match elements.next() {
                Some(Element::Star) => {
                    if elements.rest.is_empty() {
                        return true;
                    }
                    retry = Some((elements, key_after));
                }
                Some(element) if element.takes(byte) => key = key_after,
                // Another byte than the pattern wants, or a key that goes on after the pattern's end.
                _ => {
                    let Some((after_star, start)) = retry else {
                        return false;
                    };
                    elements = after_star;
                    key = start;
                    retry = start.split_first().map(|(_, next)| (after_star, next));
                }
            }
        }
    }
}

/// One unit of a pattern. All but `Star` match exactly one byte.
#[derive(Clone, Copy)]
enum Element<'p> {
    Star,
    Any,
    Byte(u8),
    /// The members are read from the pattern each time: they end by themselves.
    Class {
        negated: bool,
        members: Members<'p>,
    },
}

impl Element<'_> {
    /// Whether the element matches this one byte. A `Star` is not asked: it is no single byte.
    fn takes(self, byte: u8) -> bool {
        match self {
            Self::Star => false,
            Self::Any => true,
            Self::Byte(own) => own == byte,
            Self::Class { negated, mut members } => members.any(|m| m.holds(byte)) != negated,
        }
    }

    /// The byte the element stands for, if it can only be one.
    fn only_byte(self) -> Option<u8> {
        match self {
            Self::Byte(own) => Some(own),
            Self::Class { negated: false, mut members } => {
                let first = members.next()?;
                (first.low == first.high && members.all(|m| m == first)).then_some(first.low)
            }
            Self::Star | Self::Any | Self::Class { negated: true, .. } => None,
        }
    }
}

/// The elements of a pattern from the left, and with `rest` the place reached in it.
#[derive(Clone, Copy)]
struct Elements<'p> {
    rest: &'p [u8],
}

impl<'p> Iterator for Elements<'p> {
    type Item = Element<'p>;

    fn next(&mut self) -> Option<Element<'p>> {
        let (element, rest) = match self.rest {
            [] => return None,
            [b'*', rest @ ..] => (Element::Star, rest),
            [b'?', rest @ ..] => (Element::Any, rest),
            [b'[', rest @ ..] => {
                let (negated, rest) = match rest {
                    [b'^', rest @ ..] => (true, rest),
                    _ => (false, rest),
                };
                let members = Members { rest };
                (Element::Class { negated, members }, members.after())
            }
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => (Element::Byte(*byte), rest),
        };
        self.rest = rest;
        Some(element)
    }
}

/// One entry of a class: the bytes between two, both included, in the platform's order. A single byte is both ends.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Member {
    low: u8,
    high: u8,
}

impl Member {
    const fn single(byte: u8) -> Self {
        Self { low: byte, high: byte }
    }

    fn range(a: u8, b: u8) -> Self {
        let (low, high) = if c_order(a) <= c_order(b) { (a, b) } else { (b, a) };
        Self { low, high }
    }

    fn holds(self, byte: u8) -> bool {
        (c_order(self.low)..=c_order(self.high)).contains(&c_order(byte))
    }
}

/// A byte as the server compares it.
const fn c_order(byte: u8) -> c_char {
    c_char::from_ne_bytes([byte])
}

/// The entries of a class, up to the `]` that closes it or to the end of the pattern.
#[derive(Clone, Copy)]
struct Members<'p> {
    rest: &'p [u8],
}

impl<'p> Members<'p> {
    /// The pattern after the class.
    fn after(mut self) -> &'p [u8] {
        self.by_ref().for_each(drop);
        // Stopped in front of the closing bracket or at the end.
        match self.rest {
            [b']', rest @ ..] => rest,
            rest => rest,
        }
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        // The order of the arms is the order of the rules.
        let (member, rest) = match self.rest {
            [b'\\', byte, rest @ ..] => (Member::single(*byte), rest),
            [] | [b']', ..] => return None,
            [from, b'-', to, rest @ ..] => (Member::range(*from, *to), rest),
            [byte, rest @ ..] => (Member::single(*byte), rest),
        };
        self.rest = rest;
        Some(member)
    }
}

#[cfg(test)]
mod tests;
