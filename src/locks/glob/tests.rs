//! Patterns beside the rules written down plainly, and how many steps they take.

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
