//! How a token is kept: tokens that are lowercase hex, as this module makes them and as UUIDs without dashes are, in half
//! their length; all others as they are.

use super::Bytes;

/// Shortest and longest token, in bytes.
pub const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 1..=512;
/// Longest holder label, in bytes.
pub const HOLDER_BYTES_MAX: usize = 512;

/// Bytes that are halved or doubled together, such that the compiler uses vectors: tokens are read in every command, and a
/// step for each digit would be much of what the module adds to a command's time. A generated token is one step.
const STEP: usize = 16;

/// The lowercase hex digit of a value below 16.
#[inline]
fn digit_of(value: u8) -> u8 {
    value.wrapping_add(if value > 9 { b'a' - 10 } else { b'0' })
}

/// The bytes that lowercase hex digits write. `None` if one of them is no such digit.
#[inline]
fn halve(digits: [u8; STEP * 2]) -> Option<[u8; STEP]> {
    let mut bytes = [0; STEP];
    let mut wrong = 0;
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| {
            // Right for digits, below 32 for all other bytes.
            let value = (digit & 15).wrapping_add(((digit >> 6) & 1).wrapping_mul(9));
            wrong |= (digit_of(value) ^ digit) | (value & 16);
            value
        });
        *byte = (high << 4) | low;
    }
    (wrong == 0).then_some(bytes)
}

/// The lowercase hex digits that write these bytes.
#[inline]
fn double(bytes: [u8; STEP]) -> [u8; STEP * 2] {
    let high = bytes.map(|byte| digit_of(byte >> 4));
    let low = bytes.map(|byte| digit_of(byte & 15));
    let mut digits = [0; STEP * 2];
    for (pair, both) in digits.as_chunks_mut::<2>().0.iter_mut().zip(high.into_iter().zip(low)) {
        *pair = both.into();
    }
    digits
}

/// `part`, which is shorter, with something behind it that the same part of a whole step has as well.
fn filled<const N: usize>(part: &[u8], filler: u8) -> [u8; N] {
    let mut whole = [filler; N];
    whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
    whole
}

/// Puts `token` away in `out`, halved where it is an even number of lowercase hex digits, and returns how many bytes it
/// takes and whether it was halved. `out` is as long as the token, at least.
pub fn pack(token: &[u8], out: &mut [u8]) -> (usize, bool) {
    let half = token.len() / 2;
    if token.len() == half.saturating_mul(2) && half > 0 && pack_hex(token, out).is_some() {
        return (half, true);
    }
    let len = token.len().min(out.len());
    out.iter_mut().zip(token).for_each(|(to, from)| *to = *from);
    (len, false)
}

fn pack_hex(token: &[u8], out: &mut [u8]) -> Option<()> {
    let (steps, rest) = token.as_chunks::<{ STEP * 2 }>();
    let (places, last) = out.get_mut(..token.len() / 2)?.as_chunks_mut::<STEP>();
    for (digits, place) in steps.iter().zip(places) {
        *place = halve(*digits)?;
    }
    if !rest.is_empty() {
        let bytes = halve(filled(rest, b'0'))?;
        last.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
    Some(())
}

/// Appends the token that `pack` put away.
pub fn unpack(stored: &[u8], halved: bool, out: &mut Bytes) {
    if !halved {
        out.extend_from_slice(stored);
        return;
    }
    let (steps, rest) = stored.as_chunks::<STEP>();
    for bytes in steps {
        out.extend_from_slice(&double(*bytes));
    }
    let digits = double(filled(rest, 0));
    out.extend_from_slice(digits.get(..rest.len().saturating_mul(2)).unwrap_or_default());
}

/// Whether `token` is the one that `pack` put away.
pub fn is_same(stored: &[u8], halved: bool, token: &[u8]) -> bool {
    if !halved {
        return stored == token;
    }
    if token.len() != stored.len().saturating_mul(2) {
        return false;
    }
    let (steps, rest) = stored.as_chunks::<STEP>();
    let (digits, last) = token.as_chunks::<{ STEP * 2 }>();
    let mut same = true;
    for (bytes, digits) in steps.iter().zip(digits) {
        same &= double(*bytes) == *digits;
    }
    if !rest.is_empty() {
        same &= double(filled(rest, 0)) == filled(last, b'0');
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(token: &[u8]) -> (Vec<u8>, bool) {
        let mut out = vec![0xee; token.len() + 3];
        let (len, halved) = pack(token, &mut out);
        assert_eq!(out[token.len()..], [0xee; 3]);
        (out[..len].to_vec(), halved)
    }

    #[test]
    fn hex_is_halved_and_nothing_else_is() {
        assert_eq!(packed(b"00ff7a"), (vec![0, 255, 0x7a], true));
        for token in [&b"00FF"[..], b"0", b"abc", b"zz", b"0g", b"", b"\xff\x00", b"abcdefg"] {
            assert_eq!(packed(token), (token.to_vec(), false));
        }
    }

    /// A whole step and a part of one.
    const DIGITS: &[u8; 44] = b"0123456789abcdef0123456789abcdef0123456789ab";

    #[test]
    fn every_byte_that_is_no_digit_is_seen_at_every_place() {
        for place in 0..44 {
            for byte in 0..=255 {
                let mut token = *DIGITS;
                token[place] = byte;
                let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                assert_eq!(packed(&token).1, is_digit, "{byte} at {place}");
                assert_eq!(is_same(&packed(DIGITS).0, true, &token), token == *DIGITS);
            }
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
