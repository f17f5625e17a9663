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
    // Signed, since vectors compare so.
    value.wrapping_add(b'0').wrapping_add(if value as i8 > 9 { b'a' - 10 - b'0' } else { 0 })
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

/// A token as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    /// What stands behind the length.
    pub bytes: &'a [u8],
    /// Whether these are half as many bytes as the token has, which is lowercase hex.
    pub halved: bool,
}

impl Kept<'_> {
    /// Appends what `pack` would append for the token, and returns what it would return.
    pub fn put(&self, out: &mut Bytes) -> bool {
        put_len(self.bytes.len(), out);
        out.extend_from_slice(self.bytes);
        self.halved
    }
}

/// Appends a length of up to 512: in one byte where it is below 128.
pub fn put_len(len: usize, out: &mut Bytes) {
    if len >= 0x80 {
        out.push((len >> 8) as u8 | 0x80);
    }
    out.push(len as u8);
}

/// The part that `bytes` begin with, behind its length as `put_len` wrote it, and what follows on it.
#[inline]
pub fn take_part(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (len, rest) = match bytes {
        [high, low, rest @ ..] if *high >= 0x80 => (usize::from(high & 0x7f) << 8 | usize::from(*low), rest),
        [len, rest @ ..] => (usize::from(*len), rest),
        [] => (0, bytes),
    };
    rest.split_at_checked(len).unwrap_or_default()
}

/// Appends `token` behind the length of what it takes: halved where it is an even number of lowercase hex digits, else as
/// it is. Returns whether it was halved.
pub fn pack(token: &[u8], out: &mut Bytes) -> bool {
    let start = out.len();
    if !token.is_empty() && token.len() & 1 == 0 {
        put_len(token.len() / 2, out);
        if pack_hex(token, out).is_some() {
            return true;
        }
        out.truncate(start);
    }
    put_len(token.len(), out);
    out.extend_from_slice(token);
    false
}

fn pack_hex(token: &[u8], out: &mut Bytes) -> Option<()> {
    let (steps, rest) = token.as_chunks::<{ STEP * 2 }>();
    for digits in steps {
        out.extend_from_slice(&halve(*digits)?);
    }
    if !rest.is_empty() {
        let bytes = halve(filled(rest, b'0'))?;
        out.extend_from_slice(bytes.get(..rest.len() / 2)?);
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
    // As this module makes them, and as most are: one step.
    if let (Ok(bytes), Ok(digits)) = (<[u8; STEP]>::try_from(stored), <[u8; STEP * 2]>::try_from(token)) {
        return double(bytes) == digits;
    }
    is_same_by_steps(stored, token)
}

#[inline(never)]
fn is_same_by_steps(stored: &[u8], token: &[u8]) -> bool {
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
        let mut out = Bytes::new();
        out.push(0xee);
        let halved = pack(token, &mut out);
        out.extend_from_slice(b"behind");
        let (stored, rest) = take_part(&out[1..]);
        assert_eq!((out[0], rest), (0xee, &b"behind"[..]));
        (stored.to_vec(), halved)
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
