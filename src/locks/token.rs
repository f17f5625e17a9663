//! How a token is kept: tokens that are lowercase hex, as this module makes them and as UUIDs without dashes are, in half
//! their length; all others as they are.

/// Shortest and longest token, in bytes.
pub const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 1..=512;
/// Longest holder label, in bytes.
pub const HOLDER_BYTES_MAX: usize = 512;

/// The value of one lowercase hex digit.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(byte.wrapping_sub(b'a').wrapping_add(10)),
        _ => None,
    }
}

/// One byte from two lowercase hex digits.
fn byte_of(pair: &[u8; 2]) -> Option<u8> {
    let [high, low] = pair;
    Some((digit(*high)? << 4) | digit(*low)?)
}

/// Appends `token` to `out`, halved where it is an even number of lowercase hex digits. Returns whether it was halved.
pub fn pack(token: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let (pairs, rest) = token.as_chunks::<2>();
    if rest.is_empty() && !pairs.is_empty() {
        for pair in pairs {
            let Some(byte) = byte_of(pair) else {
                out.truncate(start);
                out.extend_from_slice(token);
                return false;
            };
            out.push(byte);
        }
        return true;
    }
    out.extend_from_slice(token);
    false
}

/// Appends the token that `pack` put away.
pub fn unpack(stored: &[u8], halved: bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    if !halved {
        out.extend_from_slice(stored);
        return;
    }
    for byte in stored {
        for nibble in [byte >> 4, byte & 15] {
            out.push(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
        }
    }
}

/// Whether `token` is the one that `pack` put away.
pub fn is_same(stored: &[u8], halved: bool, token: &[u8]) -> bool {
    if !halved {
        return stored == token;
    }
    let (pairs, rest) = token.as_chunks::<2>();
    rest.is_empty()
        && pairs.len() == stored.len()
        && pairs.iter().zip(stored).all(|(pair, byte)| byte_of(pair) == Some(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(token: &[u8]) -> (Vec<u8>, bool) {
        let mut out = b"before".to_vec();
        let halved = pack(token, &mut out);
        (out.split_off(6), halved)
    }

    #[test]
    fn hex_is_halved_and_nothing_else_is() {
        assert_eq!(packed(b"00ff7a"), (vec![0, 255, 0x7a], true));
        for token in [&b"00FF"[..], b"0", b"abc", b"zz", b"0g", b"", b"\xff\x00", b"abcdefg"] {
            assert_eq!(packed(token), (token.to_vec(), false));
        }
    }

    #[test]
    fn the_halved_form_is_not_the_token() {
        let (stored, halved) = packed(b"6162");
        assert_eq!(stored, b"ab");
        assert!(!is_same(&stored, halved, b"ab"));
        assert!(!is_same(b"ab", false, b"6162"));
    }

    proptest! {
        #[test]
        fn a_token_comes_back_and_equals_only_itself(
            token in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "[0-9a-f]{0,40}".prop_map(String::into_bytes)],
            other in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "[0-9a-f]{0,40}".prop_map(String::into_bytes)],
        ) {
            let (stored, halved) = packed(&token);
            let mut back = Vec::new();
            unpack(&stored, halved, &mut back);
            prop_assert_eq!(&back, &token);
            prop_assert!(is_same(&stored, halved, &token));
            prop_assert_eq!(is_same(&stored, halved, &other), token == other);
        }
    }
}
