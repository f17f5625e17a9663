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
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// The rules once more, by recursion over every possible way to match and with nothing shared with the code under
    /// test: what KEYS says about one key.
    fn keys_says(pattern: &[u8], key: &[u8]) -> bool {
        if pattern == b"*" {
            return true;
        }
        if key.is_empty() {
            return pattern.is_empty();
        }
        fits(pattern, key)
    }

    fn fits(p: &[u8], k: &[u8]) -> bool {
        if p.is_empty() {
            return k.is_empty();
        }
        if p[0] == b'*' {
            return (0..=k.len()).any(|taken| fits(&p[1..], &k[taken..]));
        }
        if k.is_empty() {
            return false;
        }
        let (len, set) = one(p);
        set[k[0] as usize] && fits(&p[len..], &k[1..])
    }

    /// How long the element at the start of the pattern is, and which bytes it accepts.
    fn one(p: &[u8]) -> (usize, [bool; 256]) {
        let mut set = [false; 256];
        match p[0] {
            b'?' => (1, [true; 256]),
            b'\\' if p.len() > 1 => {
                set[p[1] as usize] = true;
                (2, set)
            }
            b'[' => {
                let negated = p.get(1) == Some(&b'^');
                let mut at = if negated { 2 } else { 1 };
                loop {
                    let left = p.len() - at;
                    if left == 0 {
                        break;
                    } else if left >= 2 && p[at] == b'\\' {
                        set[p[at + 1] as usize] = true;
                        at += 2;
                    } else if p[at] == b']' {
                        at += 1;
                        break;
                    } else if left >= 3 && p[at + 1] == b'-' {
                        let ends = [c_value(p[at]), c_value(p[at + 2])];
                        let low = ends[0].min(ends[1]);
                        let high = ends[0].max(ends[1]);
                        for byte in 0..=255 {
                            if c_value(byte) >= low && c_value(byte) <= high {
                                set[byte as usize] = true;
                            }
                        }
                        at += 3;
                    } else {
                        set[p[at] as usize] = true;
                        at += 1;
                    }
                }
                if negated {
                    set = set.map(|held| !held);
                }
                (at, set)
            }
            byte => {
                set[byte as usize] = true;
                (1, set)
            }
        }
    }

    fn c_value(byte: u8) -> i32 {
        if c_char::MIN < 0 && byte > 127 { i32::from(byte) - 256 } else { i32::from(byte) }
    }

    fn bytes(alphabet: &'static [u8], longest: usize) -> impl Strategy<Value = Vec<u8>> {
        vec(select(alphabet), 0..=longest)
    }

    fn any_pattern() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            // Every special byte, mostly odd patterns.
            4 => bytes(b"*?[]^-\\ab\0\xff", 9),
            // More stars over two letters: a lot of going back.
            3 => bytes(b"**?ab", 9),
            // Classes that are mostly well-formed.
            3 => vec(
                prop_oneof![
                    Just(b"*".to_vec()),
                    Just(b"a".to_vec()),
                    bytes(b"ab^-\\]\xff\x80", 4).prop_map(|inner| [b"[", &inner[..], b"]"].concat()),
                ],
                0..5,
            )
            .prop_map(|parts| parts.concat()),
            1 => vec(any::<u8>(), 0..9),
        ]
    }

    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => bytes(b"*?[]^-\\ab\0\xff", 7),
            4 => bytes(b"ab", 9),
            2 => bytes(b"ab^-\\]\xff\x80", 5),
            1 => vec(any::<u8>(), 0..7),
        ]
    }

    /// A key that the pattern is likely to match: each element replaced by a byte it accepts, each star by a few.
    fn likely_key(pattern: &[u8], picks: &[u8]) -> Vec<u8> {
        let mut picks = picks.iter().copied().cycle();
        let mut pick = || usize::from(picks.next().unwrap_or(0));
        let mut key = vec![];
        let mut at = 0;
        while at < pattern.len() {
            if pattern[at] == b'*' {
                for _ in 0..pick() % 3 {
                    key.push(b"ab"[pick() % 2]);
                }
                at += 1;
                continue;
            }
            let (len, set) = one(&pattern[at..]);
            let accepted: Vec<u8> = (0..=255).filter(|&b| set[usize::from(b)]).collect();
            if !accepted.is_empty() {
                key.push(accepted[pick() % accepted.len()]);
            }
            at += len;
        }
        key
    }

    fn agree(pattern: &[u8], key: &[u8]) {
        let glob = Glob::new(pattern);
        let expected = keys_says(pattern, key);
        let show = || format!("{} on {}", pattern.escape_ascii(), key.escape_ascii());
        assert_eq!(glob.matches(key), expected, "{}", show());
        let head = glob.literal_head();
        if expected {
            assert!(key.starts_with(&head), "{}", show());
        }
        if glob.is_literal() {
            assert_eq!(expected, key == head, "{}", show());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60_000))]

        #[test]
        fn random_keys_get_the_answer_of_the_rules(pattern in any_pattern(), key in any_key()) {
            agree(&pattern, &key);
        }

        #[test]
        fn keys_built_from_the_pattern_get_the_answer_of_the_rules(
            pattern in any_pattern(),
            picks in vec(any::<u8>(), 1..24),
        ) {
            agree(&pattern, &likely_key(&pattern, &picks));
        }

        #[test]
        fn an_escaped_key_is_a_literal_and_matches_itself_alone(key in any_key(), other in any_key()) {
            let pattern: Vec<u8> = key.iter().flat_map(|&b| [b'\\', b]).collect();
            let glob = Glob::new(&pattern);
            prop_assert!(glob.is_literal());
            prop_assert_eq!(glob.literal_head(), key.clone());
            prop_assert!(glob.matches(&key));
            prop_assert_eq!(glob.matches(&other), other == key);
        }
    }

    /// Every pattern of up to four bytes over the special ones, against every key of up to two.
    #[test]
    fn all_short_patterns_get_the_answer_of_the_rules() {
        fn words(alphabet: &[u8], longest: usize) -> Vec<Vec<u8>> {
            let mut all = vec![vec![]];
            let mut last = all.clone();
            for _ in 0..longest {
                last = last.iter().flat_map(|w| alphabet.iter().map(move |&b| [&w[..], &[b]].concat())).collect();
                all.extend(last.iter().cloned());
            }
            all
        }
        let keys = words(b"*?[]^-\\ab\0\xff", 2);
        for pattern in words(b"*?[]^-\\ab\0\xff", 4) {
            for key in &keys {
                let glob = Glob::new(&pattern);
                assert_eq!(
                    glob.matches(key),
                    keys_says(&pattern, key),
                    "{} on {}",
                    pattern.escape_ascii(),
                    key.escape_ascii()
                );
            }
        }
    }

    /// One row per quirk: the pattern, keys that match, keys that do not. Real servers give the same answers.
    #[test]
    fn quirks() {
        type Row = (&'static [u8], &'static [&'static [u8]], &'static [&'static [u8]]);
        let table: &[Row] = &[
            // The empty pattern and the empty key.
            (b"", &[b""], &[b"a", b"\0"]),
            (b"*", &[b"", b"a", b"\xff\0"], &[]),
            (b"**", &[b"a", b"ab"], &[b""]),
            (b"?", &[b"a", b"*", b"\0", b"\xff"], &[b"", b"ab"]),
            // The whole key, bytes as they are.
            (b"ab", &[b"ab"], &[b"a", b"abb", b"AB", b"aab"]),
            (b"a\0b", &[b"a\0b"], &[b"a", b"a\0", b"a\0c"]),
            (b"\xc3\xa9", &[b"\xc3\xa9"], &[b"\xc3", b"\xe9"]),
            (b"]", &[b"]"], &[b"a"]),
            (b"^a-b", &[b"^a-b"], &[b"a"]),
            // Stars.
            (b"a*", &[b"a", b"ab", b"a*"], &[b"", b"ba"]),
            (b"a**", &[b"a", b"ab"], &[b""]),
            (b"*a", &[b"a", b"ba", b"aa"], &[b"", b"ab"]),
            (b"*a*b*", &[b"ab", b"xaxbx", b"aabb"], &[b"ba", b"a", b"b"]),
            (b"a*?", &[b"ab", b"abc"], &[b"a"]),
            (b"*ab", &[b"aab", b"abab"], &[b"aba"]),
            (b"*?*?", &[b"ab", b"abc"], &[b"a", b""]),
            // Escapes.
            (b"\\*", &[b"*"], &[b"", b"a", b"\\*", b"**"]),
            (b"\\a", &[b"a"], &[b"\\a", b"\\"]),
            (b"\\\\", &[b"\\"], &[b"\\\\"]),
            (b"\\", &[b"\\"], &[b"", b"\\\\"]),
            (b"a*\\", &[b"a\\", b"ab\\"], &[b"a"]),
            (b"a\\*", &[b"a*"], &[b"a", b"ab"]),
            // Classes.
            (b"[ab]", &[b"a", b"b"], &[b"", b"c", b"ab", b"]"]),
            (b"[^ab]", &[b"c", b"]", b"\0"], &[b"", b"a", b"b", b"cc"]),
            (b"[]", &[], &[b"", b"]", b"[", b"a", b"[]"]),
            (b"[]a]", &[], &[b"]", b"a", b"]a]", b"a]"]),
            (b"[^]", &[b"a", b"]", b"^"], &[b"", b"aa"]),
            (b"[^]a]", &[b"xa]"], &[b"x", b"a]"]),
            (b"[^^]", &[b"a"], &[b"^"]),
            (b"[a^]", &[b"a", b"^"], &[b"b"]),
            (b"[!a]", &[b"!", b"a"], &[b"b"]),
            (b"[*?]", &[b"*", b"?"], &[b"a"]),
            (b"[[]", &[b"["], &[b"]"]),
            (b"[\\]]", &[b"]"], &[b"\\", b"\\]"]),
            (b"[\\^a]", &[b"^", b"a"], &[b"b", b"\\"]),
            (b"[\\\\]", &[b"\\"], &[b"]"]),
            // Ranges.
            (b"[a-c]", &[b"a", b"b", b"c"], &[b"d", b"-", b"`"]),
            (b"[c-a]", &[b"a", b"b", b"c"], &[b"d", b"-"]),
            (b"[^a-c]", &[b"d", b"-"], &[b"a", b"b", b"c"]),
            (b"[-a]", &[b"-", b"a"], &[b","]),
            (b"[--/]", &[b"-", b".", b"/"], &[b",", b"0"]),
            (b"[a\\-c]", &[b"a", b"-", b"c"], &[b"b", b"\\"]),
            (b"[\\a-c]", &[b"a", b"-", b"c"], &[b"b", b"\\"]),
            (b"[a-b-d]", &[b"a", b"b", b"-", b"d"], &[b"c"]),
            // The bracket as a range's end leaves the class open.
            (b"[a-]", &[b"]", b"^", b"_", b"`", b"a"], &[b"-", b"\\", b"b"]),
            (b"[a-]b]", &[b"_", b"b"], &[b"_b]", b"-"]),
            // The backslash as a range's end escapes nothing.
            (b"[a-\\]", &[b"\\", b"]", b"a"], &[b"-", b"b", b"["]),
            // A range across the sign of a char that C may have.
            (b"[\x80-\xff]", &[b"\x80", b"\xc0", b"\xff"], &[b"a", b"\0", b"\x7f"]),
            (b"[\0-\x7f]", &[b"\0", b"a", b"\x7f"], &[b"\x80", b"\xff"]),
            // Not closed.
            (b"[", &[], &[b"", b"[", b"a"]),
            (b"a[", &[], &[b"a", b"a[", b"ab"]),
            (b"[^", &[b"a", b"^", b"["], &[b"", b"aa"]),
            (b"[a", &[b"a"], &[b"[a", b"["]),
            (b"[^a", &[b"b"], &[b"a"]),
            (b"[a-", &[b"a", b"-"], &[b"b", b"["]),
            (b"[a-c", &[b"a", b"b", b"c"], &[b"-"]),
            (b"[ab*", &[b"a", b"b", b"*"], &[b"ab", b"c"]),
            (b"[\\", &[b"\\"], &[b"[", b"[\\"]),
            (b"[\\]", &[b"]"], &[b"\\"]),
            (b"[a\\", &[b"a", b"\\"], &[b"b"]),
            (b"*[", &[], &[b"a", b"["]),
            (b"*[^", &[b"a", b"aa"], &[b""]),
            // The key ends first: stars may be left over, a class or an escaped star may not.
            (b"a***", &[b"a"], &[b"b"]),
            (b"a[^]*", &[b"ab", b"abc"], &[b"a"]),
            (b"a*[", &[], &[b"a", b"ab"]),
            (b"a*\\*", &[b"a*", b"ab*"], &[b"a", b"ab"]),
        ];
        for (pattern, yes, no) in table {
            let glob = Glob::new(pattern);
            for (keys, expected) in [(yes, true), (no, false)] {
                for key in *keys {
                    let show = || format!("{} on {}", pattern.escape_ascii(), key.escape_ascii());
                    assert_eq!(glob.matches(key), expected, "{}", show());
                    assert_eq!(keys_says(pattern, key), expected, "reference: {}", show());
                }
            }
        }
    }

    #[test]
    fn ranges_follow_the_sign_of_char() {
        let glob = Glob::new(b"[a-\xff]");
        let signed = c_char::MIN < 0;
        assert!(glob.matches(b"a") && glob.matches(b"\xff"));
        for (key, if_signed) in [(b"b", false), (b"\x80", false), (b"A", true), (b"\0", true)] {
            assert_eq!(glob.matches(key), if_signed == signed, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn heads() {
        let table: &[(&[u8], &[u8], bool)] = &[
            (b"", b"", true),
            (b"abc", b"abc", true),
            (b"abc*", b"abc", false),
            (b"ab?c", b"ab", false),
            (b"*abc", b"", false),
            (b"a\\*b", b"a*b", true),
            (b"a\\", b"a\\", true),
            (b"a\\*[?]b*", b"a*?b", false),
            (b"a[\\]]", b"a]", true),
            (b"a[b-b]c", b"abc", true),
            (b"a[bbb]c", b"abc", true),
            (b"a[b", b"ab", true),
            (b"a[bc]d", b"a", false),
            (b"a[b-c]d", b"a", false),
            (b"a[^b]d", b"a", false),
            (b"a[]d", b"a", false),
            (b"a[^]d", b"a", false),
            (b"\0\xff*", b"\0\xff", false),
        ];
        for (pattern, head, literal) in table {
            let glob = Glob::new(pattern);
            assert_eq!(glob.literal_head(), *head, "{}", pattern.escape_ascii());
            assert_eq!(glob.is_literal(), *literal, "{}", pattern.escape_ascii());
        }
    }

    fn steps(pattern: &[u8], key: &[u8]) -> (bool, usize) {
        let mut steps = 0;
        let answer = Glob::new(pattern).run(key, || steps += 1);
        (answer, steps)
    }

    #[test]
    fn hostile_patterns_take_bounded_steps() {
        let key = vec![b'a'; 100_000];

        // Many stars that all fit anywhere, and an end that never does.
        let stars = [b"*a".repeat(2_000), b"*b".to_vec()].concat();
        let (answer, taken) = steps(&stars, &key);
        assert!(!answer);
        assert!(taken <= 2 * (key.len() + stars.len()), "{taken}");

        // One star before several elements, which are tried at every place in the key.
        for tail in [&b"*aaab"[..], b"*?[a-b]\\ab", b"*a*aaab"] {
            let (answer, taken) = steps(tail, &key);
            assert!(!answer);
            assert!(taken <= tail.len() * key.len(), "{taken}");
        }

        // More stars than the servers' limit of recursion, with the key they describe.
        let (answer, taken) = steps(&b"*a".repeat(100_000), &key);
        assert!(answer);
        assert!(taken <= 2 * key.len(), "{taken}");

        // A last star asks for nothing more of the key.
        assert_eq!(steps(b"a*", &key), (true, 2));

        // A pattern longer than the key stops where the key does.
        let (answer, taken) = steps(&[b"*".to_vec(), b"a".repeat(200_000)].concat(), &key);
        assert!(!answer);
        assert!(taken <= 1 + key.len(), "{taken}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn steps_stay_below_pattern_times_key(pattern in bytes(b"**?ab[", 40), key in bytes(b"ab", 200)) {
            let (_, taken) = steps(&pattern, &key);
            prop_assert!(taken <= (pattern.len() + 1) * (key.len() + 1), "{taken}");
        }
    }
}
