//! How a token is kept: tokens that are lowercase hex, as this module makes them and as UUIDs without dashes are, in half
//! their length; all others as they are.

use super::Bytes;

/// Shortest and longest token, in bytes.
pub const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 1..=512;
/// Longest holder label, in bytes.
pub const HOLDER_BYTES_MAX: usize = 512;

/// The value of a lowercase hex digit, by its byte; [`NO_DIGIT`] for all others.
const DIGITS: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value: u8 = 0;
    while value < 16 {
        let digit = if value < 10 { b'0'.wrapping_add(value) } else { b'a'.wrapping_add(value).wrapping_sub(10) };
        #[allow(clippy::indexing_slicing, reason = "a byte is below 256; and it runs in the compiler, which checks it")]
        {
            values[digit as usize] = value;
        }
        value = value.wrapping_add(1);
    }
    values
};
/// Has bits that no digit has.
const NO_DIGIT: u8 = 0xff;

/// The byte that two hex digits write, and bits above 15 in the second where one of them is no digit. Without a branch,
/// since tokens are read in every command.
#[inline]
fn byte_of(pair: &[u8; 2]) -> (u8, u8) {
    let [high, low] = pair.map(|digit| DIGITS.get(usize::from(digit)).copied().unwrap_or(NO_DIGIT));
    ((high << 4) | (low & 15), high | low)
}

/// Appends `token` to `out`, halved where it is an even number of lowercase hex digits. Returns whether it was halved.
pub fn pack(token: &[u8], out: &mut Bytes) -> bool {
    let start = out.len();
    let (pairs, rest) = token.as_chunks::<2>();
    if rest.is_empty() && !pairs.is_empty() {
        let mut seen = 0;
        out.extend(pairs.iter().map(|pair| {
            let (byte, bits) = byte_of(pair);
            seen |= bits;
            byte
        }));
        if seen < 16 {
            return true;
        }
        out.truncate(start);
    }
    out.extend_from_slice(token);
    false
}

/// Appends the token that `pack` put away.
pub fn unpack(stored: &[u8], halved: bool, out: &mut Bytes) {
    if !halved {
        out.extend_from_slice(stored);
        return;
    }
    let digit =
        |value: u8| if value < 10 { b'0'.wrapping_add(value) } else { b'a'.wrapping_add(value).wrapping_sub(10) };
    for byte in stored {
        out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

/// Whether `token` is the one that `pack` put away.
pub fn is_same(stored: &[u8], halved: bool, token: &[u8]) -> bool {
    if !halved {
        return stored == token;
    }
    let (pairs, rest) = token.as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != stored.len() {
        return false;
    }
    let mut differs = 0;
    for (pair, byte) in pairs.iter().zip(stored) {
        let (found, bits) = byte_of(pair);
        differs |= (found ^ byte) | (bits & 0xf0);
    }
    differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(token: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Bytes::from_slice(b"before");
        let halved = pack(token, &mut out);
        (out[6..].to_vec(), halved)
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
            let mut back = Bytes::new();
            unpack(&stored, halved, &mut back);
            prop_assert_eq!(&back[..], &token[..]);
            prop_assert!(is_same(&stored, halved, &token));
            prop_assert_eq!(is_same(&stored, halved, &other), token == other);
        }
    }
}
