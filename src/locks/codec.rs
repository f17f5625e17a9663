//! A lock as bytes: what the append-only file and the replicas carry, and what the RDB and DUMP did at first; what they
//! carry since then is in `stored.rs`.
//!
//! It is a fixed head of 50 bytes in little endian, then the token, then the holder:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, [`VERSION`] |
//! | 1 | what happened, [`Change`] |
//! | 8 | fence, 1 to 2^53 - 1 |
//! | 8, 8 | claimed at, renewed at: Unix time in ms, not negative |
//! | 4 | renewals |
//! | 8 | linger in ms, -1 for none |
//! | 8 | deadline: Unix time in ms, -1 where the carrier keeps it itself (RDB, DUMP) or there is none (PERSIST) |
//! | 2, 2 | length of the token (1 to 512) and of the holder (0 to 512) |
//!
//! The internal command has two short forms beside; see [`decode_said`].
//!
//! A new form is a new version and a new arm in [`decode`], never an edit of this one.

use super::Bytes;
use super::fence::FENCE_LIMIT;
use super::lock::Grant;
use super::token::{HOLDER_BYTES_MAX, TOKEN_BYTES};

/// The only version so far.
pub const VERSION: u8 = 1;
/// Bytes before the token.
const HEAD_BYTES: usize = 50;

/// Why a lock is written, so that a replica can tell its own subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// No change: the state as it is stored.
    Stored,
    Claim,
    Renew,
    Steal,
    Linger,
}

impl Change {
    const ALL: [Self; 5] = [Self::Stored, Self::Claim, Self::Renew, Self::Steal, Self::Linger];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// A lock that was read from bytes, borrowing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// What happened.
    pub change: Change,
    /// The lock but for its deadline.
    pub grant: Grant<'a>,
    /// Unix time in ms.
    pub expires_at_ms: Option<i64>,
}

/// Appends the bytes of a lock to `out`.
pub fn encode(change: Change, grant: &Grant<'_>, expires_at_ms: Option<i64>, out: &mut Bytes) {
    out.reserve(HEAD_BYTES.saturating_add(grant.token.len()).saturating_add(grant.holder.len()));
    out.push(VERSION);
    out.push(change as u8);
    out.extend_from_slice(&grant.fence.to_le_bytes());
    out.extend_from_slice(&grant.claimed_at_ms.to_le_bytes());
    out.extend_from_slice(&grant.renewed_at_ms.to_le_bytes());
    out.extend_from_slice(&grant.renewals.to_le_bytes());
    out.extend_from_slice(&grant.linger_ms.unwrap_or(-1).to_le_bytes());
    out.extend_from_slice(&expires_at_ms.unwrap_or(-1).to_le_bytes());
    out.extend_from_slice(&(grant.token.len() as u16).to_le_bytes());
    out.extend_from_slice(&(grant.holder.len() as u16).to_le_bytes());
    out.extend_from_slice(grant.token);
    out.extend_from_slice(grant.holder);
}

/// What the internal command carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// A lock's state.
    Lock(Decoded<'a>),
    /// The key is gone.
    Gone,
    /// The key has this deadline, Unix time in ms, whatever it holds.
    Deadline(i64),
}

/// The bytes of [`Said::Gone`].
pub fn gone() -> [u8; 0] {
    []
}

/// The bytes of [`Said::Deadline`].
pub fn deadline(at_ms: i64) -> [u8; 8] {
    at_ms.to_le_bytes()
}

/// Reads what the internal command carries: a lock, or one of the two short forms that stand in for the server's own
/// DEL and PEXPIREAT where those have another name. `None` for everything else.
pub fn decode_said(bytes: &[u8]) -> Option<Said<'_>> {
    if bytes.is_empty() {
        return Some(Said::Gone);
    }
    match <[u8; 8]>::try_from(bytes) {
        Ok(at_ms) => Some(i64::from_le_bytes(at_ms)).filter(|at_ms| *at_ms >= 0).map(Said::Deadline),
        Err(_) => decode(bytes).map(Said::Lock),
    }
}

/// Takes fixed parts off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }

    /// A time that is not negative.
    fn time(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take()?)).filter(|ms| *ms >= 0)
    }

    /// A time or length of time that is not negative, or -1 for none.
    fn optional(&mut self) -> Option<Option<i64>> {
        match i64::from_le_bytes(self.take()?) {
            -1 => Some(None),
            ms if ms >= 0 => Some(Some(ms)),
            _ => None,
        }
    }
}

/// Reads a lock. `None` for every input that [`encode`] could not have written: another version, a part too short, too
/// long, out of range, or bytes left over.
pub fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    let mut reader = Reader(bytes);
    let [version, change] = reader.take()?;
    if version != VERSION {
        return None;
    }
    let change = Change::from_byte(change)?;
    let fence = u64::from_le_bytes(reader.take()?);
    if fence == 0 || fence >= FENCE_LIMIT {
        return None;
    }
    let claimed_at_ms = reader.time()?;
    let renewed_at_ms = reader.time()?;
    let renewals = u32::from_le_bytes(reader.take()?);
    let linger_ms = reader.optional()?;
    let expires_at_ms = reader.optional()?;
    let token_len = usize::from(u16::from_le_bytes(reader.take()?));
    let holder_len = usize::from(u16::from_le_bytes(reader.take()?));
    if !TOKEN_BYTES.contains(&token_len) || holder_len > HOLDER_BYTES_MAX {
        return None;
    }
    let token = reader.bytes(token_len)?;
    let holder = reader.bytes(holder_len)?;
    if !reader.0.is_empty() {
        return None;
    }
    let grant = Grant { token, holder, fence, claimed_at_ms, renewed_at_ms, renewals, linger_ms };
    Some(Decoded { change, grant, expires_at_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(change: Change, grant: &Grant<'_>, expires_at_ms: Option<i64>) -> Vec<u8> {
        let mut out = Bytes::new();
        encode(change, grant, expires_at_ms, &mut out);
        out.to_vec()
    }

    prop_compose! {
        fn owned()(
            token in prop::collection::vec(any::<u8>(), 1..=512),
            holder in prop::collection::vec(any::<u8>(), 0..=512),
            fence in 1..FENCE_LIMIT,
            times in (0..i64::MAX, 0..i64::MAX),
            renewals: u32,
            linger_ms in prop::option::of(0..i64::MAX),
            expires_at_ms in prop::option::of(0..i64::MAX),
            change in 0u8..5,
        ) -> (Vec<u8>, Vec<u8>, u64, (i64, i64), u32, Option<i64>, Option<i64>, u8) {
            (token, holder, fence, times, renewals, linger_ms, expires_at_ms, change)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read((token, holder, fence, times, renewals, linger_ms, expires_at_ms, change) in owned()) {
            let grant = Grant {
                token: &token, holder: &holder, fence, claimed_at_ms: times.0, renewed_at_ms: times.1, renewals, linger_ms,
            };
            let change = Change::from_byte(change).expect("below 5");
            let bytes = written(change, &grant, expires_at_ms);
            prop_assert_eq!(decode(&bytes), Some(Decoded { change, grant, expires_at_ms }));
            for cut in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..cut]), None);
            }
            let longer = [&bytes[..], b"x"].concat();
            prop_assert_eq!(decode(&longer), None);
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(read) = decode(&bytes) {
                prop_assert_eq!(written(read.change, &read.grant, read.expires_at_ms), bytes);
            }
        }
    }

    #[test]
    fn the_short_forms_are_no_locks() {
        assert_eq!(decode_said(&gone()), Some(Said::Gone));
        assert_eq!(decode_said(&deadline(7)), Some(Said::Deadline(7)));
        assert_eq!(decode_said(&deadline(-1)), None);
        assert_eq!(decode_said(b"7"), None);
        assert_eq!((decode(&gone()), decode(&deadline(7))), (None, None));
    }

    #[test]
    fn parts_out_of_range_are_refused() {
        let grant = Grant {
            token: b"t",
            holder: b"h",
            fence: 7,
            claimed_at_ms: 1,
            renewed_at_ms: 2,
            renewals: 3,
            linger_ms: None,
        };
        let good = written(Change::Stored, &grant, None);
        assert!(decode(&good).is_some());
        let with = |at: usize, part: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + part.len()].copy_from_slice(part);
            decode(&bytes).is_some()
        };
        assert!(!with(0, &[0]), "version 0");
        assert!(!with(0, &[2]), "a later version");
        assert!(!with(1, &[5]), "an unknown change");
        assert!(!with(2, &0u64.to_le_bytes()), "fence 0");
        assert!(!with(2, &FENCE_LIMIT.to_le_bytes()), "fence 2^53");
        assert!(!with(10, &(-1i64).to_le_bytes()), "claimed before 1970");
        assert!(!with(18, &i64::MIN.to_le_bytes()), "renewed before 1970");
        assert!(!with(30, &(-2i64).to_le_bytes()), "linger below -1");
        assert!(!with(38, &(-2i64).to_le_bytes()), "deadline below -1");
        assert!(!with(46, &0u16.to_le_bytes()), "no token");
        assert!(!with(46, &513u16.to_le_bytes()), "a long token");
        assert!(!with(48, &513u16.to_le_bytes()), "a long holder");
    }
}
