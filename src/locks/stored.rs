//! A lock as the RDB and DUMP carry it, in the second form: few bytes, and hardly any that the server could spare. It
//! tries to compress every string of more than 20 bytes, and what it has compressed takes longer to load.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the fence in 53 bits, in little endian, and above it [`HALVED`], [`LINGERS`], [`DATED`] and [`RENEWED`] |
//! | 2 to 514 | the token as `token::pack` keeps it, behind its length |
//! | 1 to 514 | the holder, behind its length |
//! | 1 to 10 | [`DATED`]: when it was claimed, from the time that the fence tells |
//! | 1 to 10, 1 to 5 | [`RENEWED`]: when it was renewed last, from the claim, and how often |
//! | 1 to 9 | [`LINGERS`]: linger in ms |
//!
//! Lengths are those of `token::put_len`. The last three rows are numbers of seven bits a byte, the lowest first, each
//! byte but the last with its highest bit set; the differences (in ms) doubled if they are not negative, else doubled
//! without the sign, less one.
//!
//! The server keeps the deadline, and the type's encoding version says which form this is (`server/lock_type.rs`): a
//! new one is a new version beside this one, never an edit of it.

use super::Bytes;
use super::fence::FENCE_LIMIT;
use super::lock::{Grant, time_of};
use super::token::{self, HOLDER_BYTES_MAX, Kept, TOKEN_BYTES};

/// Above the fence: the token was lowercase hex and is packed.
const HALVED: u64 = 1 << 63;
/// There is a linger.
const LINGERS: u64 = 1 << 62;
/// The time of the claim is not that of the fence.
const DATED: u64 = 1 << 61;
/// It was renewed, or its times say so.
const RENEWED: u64 = 1 << 60;

/// Of a byte of a number: another one follows.
const MORE: u8 = 1 << 7;

/// Appends the bytes of a lock to `out`. Token and holder are within their limits.
pub fn encode(grant: &Grant<'_>, out: &mut Bytes) {
    let claimed_after_ms = grant.claimed_at_ms.wrapping_sub(time_of(grant.fence));
    let renewed_after_ms = grant.renewed_at_ms.wrapping_sub(grant.claimed_at_ms);
    let mut token = Bytes::new();
    let flags = [
        (HALVED, token::pack(grant.token, &mut token)),
        (LINGERS, grant.linger_ms.is_some()),
        (DATED, claimed_after_ms != 0),
        (RENEWED, renewed_after_ms != 0 || grant.renewals != 0),
    ];
    let head = flags.iter().filter(|(_, is_set)| *is_set).fold(grant.fence, |head, (flag, _)| head | flag);
    out.extend_from_slice(&head.to_le_bytes());
    out.extend_from_slice(&token);
    token::put_len(grant.holder.len(), out);
    out.extend_from_slice(grant.holder);
    if head & DATED != 0 {
        put_number(folded(claimed_after_ms), out);
    }
    if head & RENEWED != 0 {
        put_number(folded(renewed_after_ms), out);
        put_number(grant.renewals.into(), out);
    }
    if let Some(ms) = grant.linger_ms {
        put_number(ms as u64, out);
    }
}

/// A difference as a number that is small if it is near zero.
fn folded(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unfolded(number: u64) -> i64 {
    (number >> 1) as i64 ^ ((number & 1) as i64).wrapping_neg()
}

fn put_number(mut number: u64, out: &mut Bytes) {
    while number >= MORE.into() {
        out.push(number as u8 | MORE);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front. `None` for one that ends with a zero byte, which a shorter one could say, and for one
/// beyond 64 bits.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & !MORE);
        let placed = part << shift;
        if placed >> shift != part {
            return None;
        }
        number |= placed;
        if byte & MORE == 0 {
            return (part != 0 || shift == 0).then_some(number);
        }
    }
    None
}

/// A time that lies `folded` from `start_ms` and is not negative.
fn time_from(start_ms: i64, folded: u64) -> Option<i64> {
    start_ms.checked_add(unfolded(folded)).filter(|ms| *ms >= 0)
}

/// Takes a part off the front, behind its length. `None` for a length in two bytes that one could say.
fn take_part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = match bytes {
        [len, rest @ ..] if *len < 0x80 => (usize::from(*len), rest),
        [high, low, rest @ ..] if *high > 0x80 || *low >= 0x80 => {
            (usize::from(high & 0x7f) << 8 | usize::from(*low), rest)
        }
        _ => return None,
    };
    let (part, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some(part)
}

/// Reads a lock, its token with the help of `room`, which is empty. `None` as by [`read`].
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "the server's load takes the token as it is kept; fuzzers ask for all")
)]
pub fn decode<'a>(bytes: &'a [u8], room: &'a mut Bytes) -> Option<Grant<'a>> {
    let (token, grant) = read(bytes)?;
    token::unpack(token.bytes, token.halved, room);
    Some(Grant { token: room, ..grant })
}

/// Reads a lock; the token is not in the grant but beside it. `None` for every input that [`encode`] could not have
/// written: a part too short, too long, out of range, said otherwise than it would say it, or bytes left over.
pub fn read(bytes: &[u8]) -> Option<(Kept<'_>, Grant<'_>)> {
    let (head, mut rest) = bytes.split_first_chunk()?;
    let head = u64::from_le_bytes(*head);
    let fence = head & FENCE_LIMIT.saturating_sub(1);
    if fence == 0 || head & !(fence | HALVED | LINGERS | DATED | RENEWED) != 0 {
        return None;
    }
    let token = Kept { bytes: take_part(&mut rest)?, halved: head & HALVED != 0 };
    let holder = take_part(&mut rest).filter(|holder| holder.len() <= HOLDER_BYTES_MAX)?;
    let token_bytes = token.bytes.len().saturating_mul(if token.halved { 2 } else { 1 });
    if !TOKEN_BYTES.contains(&token_bytes) || (!token.halved && token::pack(token.bytes, &mut Bytes::new())) {
        return None;
    }
    let mut claimed_at_ms = time_of(fence);
    if head & DATED != 0 {
        let after = take_number(&mut rest).filter(|after| *after != 0)?;
        claimed_at_ms = time_from(claimed_at_ms, after)?;
    }
    let (mut renewed_at_ms, mut renewals) = (claimed_at_ms, 0);
    if head & RENEWED != 0 {
        let after = take_number(&mut rest)?;
        renewed_at_ms = time_from(claimed_at_ms, after)?;
        renewals = u32::try_from(take_number(&mut rest)?).ok()?;
        if after == 0 && renewals == 0 {
            return None;
        }
    }
    let linger_ms = match head & LINGERS {
        0 => None,
        _ => Some(i64::try_from(take_number(&mut rest)?).ok()?),
    };
    let grant = Grant { token: &[], holder, fence, claimed_at_ms, renewed_at_ms, renewals, linger_ms };
    rest.is_empty().then_some((token, grant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(grant: &Grant<'_>) -> Vec<u8> {
        let mut out = Bytes::new();
        encode(grant, &mut out);
        out.to_vec()
    }

    fn is_read(bytes: &[u8]) -> bool {
        decode(bytes, &mut Bytes::new()).is_some()
    }

    fn token() -> impl Strategy<Value = Vec<u8>> {
        let ends = prop_oneof![Just(1), Just(2), Just(127), Just(128), Just(256), Just(511), Just(512)];
        prop_oneof![
            prop::collection::vec(any::<u8>(), TOKEN_BYTES),
            "[0-9a-f]{1,64}".prop_map(String::into_bytes),
            ends.prop_map(|len: usize| vec![b'a'; len]),
        ]
    }

    fn ms() -> impl Strategy<Value = i64> {
        prop_oneof![0..=i64::MAX, 0..1_000_000i64, Just(0), Just(i64::MAX)]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            token in token(),
            holder in prop::collection::vec(any::<u8>(), 0..=HOLDER_BYTES_MAX),
            fence in prop_oneof![1..FENCE_LIMIT, Just(FENCE_LIMIT - 1), Just(1)],
            claimed in prop::option::of(ms()),
            renewed in prop::option::of(ms()),
            renewals in prop_oneof![Just(0), any::<u32>(), Just(u32::MAX)],
            linger_ms in prop::option::of(ms()),
        ) {
            let claimed_at_ms = claimed.unwrap_or(time_of(fence));
            let renewed_at_ms = renewed.unwrap_or(claimed_at_ms);
            let (token, holder) = (&token[..], &holder[..]);
            let grant = Grant { token, holder, fence, claimed_at_ms, renewed_at_ms, renewals, linger_ms };
            let bytes = written(&grant);
            let mut room = Bytes::new();
            prop_assert_eq!(decode(&bytes, &mut room), Some(grant));
            for cut in 0..bytes.len() {
                prop_assert!(!is_read(&bytes[..cut]));
            }
            prop_assert!(!is_read(&[&bytes[..], b"x"].concat()));
        }

        #[test]
        fn any_bytes_are_an_answer(
            head in prop_oneof![any::<u64>(), (1..FENCE_LIMIT, 0..16u64).prop_map(|(fence, flag)| fence | flag << 60)],
            token in prop_oneof![prop::collection::vec(any::<u8>(), 0..4), Just(b"ab".to_vec())],
            rest in prop::collection::vec(prop_oneof![0..3u8, Just(0x7f), Just(0x80), any::<u8>()], 0..24),
        ) {
            let bytes = [&head.to_le_bytes()[..], &[token.len() as u8], &token, &rest].concat();
            for bytes in [&bytes, &rest] {
                if let Some(grant) = decode(bytes, &mut Bytes::new()) {
                    prop_assert_eq!(&written(&grant), bytes);
                }
            }
        }

        #[test]
        fn every_number_is_read_in_its_shortest_form_alone(number: u64, difference: i64) {
            let mut out = Bytes::new();
            put_number(number, &mut out);
            let mut rest = &out[..];
            prop_assert_eq!(take_number(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
            let longer = [&out[..out.len() - 1], &[out[out.len() - 1] | MORE, 0]].concat();
            prop_assert_eq!(take_number(&mut &longer[..]), None);
            prop_assert_eq!(unfolded(folded(difference)), difference);
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_none() {
        let with_last = |last: u8| {
            let bytes = [&[0xff; 9][..], &[last]].concat();
            take_number(&mut &bytes[..])
        };
        assert_eq!(with_last(1), Some(u64::MAX));
        for last in [0, 2, 3, 0x7f, 0x81, 0xff] {
            assert_eq!(with_last(last), None, "{last}");
        }
    }

    /// A lock as most are: what its form is may never change.
    #[test]
    fn the_form_byte_by_byte() {
        let grant = Grant {
            token: b"00ff7a10",
            holder: b"app",
            fence: 0x06_0504_0302_0101,
            claimed_at_ms: 0x06_0504_0302_0101 / 1_000,
            renewed_at_ms: 0x06_0504_0302_0101 / 1_000 + 300,
            renewals: 2,
            linger_ms: Some(5),
        };
        let due = b"\x01\x01\x02\x03\x04\x05\x06\xd0\x04\x00\xff\x7a\x10\x03app\xd8\x04\x02\x05";
        assert_eq!(written(&grant), due);
        let grant = Grant { token: b"t", holder: b"", renewed_at_ms: 7, claimed_at_ms: 7, renewals: 0, ..grant };
        let grant = Grant { fence: 9_000, linger_ms: None, ..grant };
        assert_eq!(written(&grant), b"\x28\x23\x00\x00\x00\x00\x00\x20\x01t\x00\x03");
    }

    #[test]
    fn what_would_be_written_otherwise_is_refused() {
        let with = |flags: u64, rest: &[u8]| is_read(&[&(7 | flags).to_le_bytes()[..], rest].concat());
        assert!(with(0, b"\x01t\0"));
        assert!(!with(0, b"\0\0"), "no token");
        assert!(!with(0, b"\x80\x01t\0"), "a length that is too long");
        assert!(!with(0, b"\x02ab\0"), "hex that is not packed");
        assert!(with(HALVED, b"\x02ab\0") && with(0, b"\x02aB\0"));
        assert!(!with(HALVED, &[&[0x81, 1][..], &[7; 257], b"\0"].concat()), "a long token");
        assert!(!with(0, &[&[0x82, 1][..], &[b'-'; 513], b"\0"].concat()), "a long token");
        assert!(!with(0, &[&b"\x01t\x82\x01"[..], &[b'-'; 513]].concat()), "a long holder");
        assert!(with(DATED, b"\x01t\0\x02") && with(RENEWED, b"\x01t\0\x02\0") && with(RENEWED, b"\x01t\0\0\x01"));
        assert!(!with(DATED, b"\x01t\0\0"), "the time of the fence");
        assert!(!with(DATED, b"\x01t\0\x01"), "claimed before 1970");
        assert!(!with(RENEWED, b"\x01t\0\x01\x01"), "renewed before 1970");
        assert!(!with(RENEWED, b"\x01t\0\0\0"), "not renewed");
        assert!(!with(RENEWED, b"\x01t\0\x02\x80\x80\x80\x80\x10"), "2^32 renewals");
        assert!(with(LINGERS, b"\x01t\0\0"));
        assert!(!with(LINGERS, b"\x01t\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "linger below 0");
        for bit in 53..60 {
            assert!(!with(1 << bit, b"\x01t\0"), "bit {bit}");
        }
        assert!(!is_read(&[&0u64.to_le_bytes()[..], b"\x01t\0"].concat()), "fence 0");
    }
}
