//! One lock as it lies in memory: who holds it, since when, and its key's name, in one allocation.
//!
//! The keyspace and the registry share a lock by a reference count, so neither can point at memory that the other gave
//! back. That matters, since the server frees values on other threads too (FLUSHALL ASYNC): whoever lets go last frees,
//! and what changes after the grant is atomic.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering::Relaxed};

use triomphe::ThinArc;

use super::fence::FENCE_LIMIT;
use super::{Bytes, token};

/// What a grant says, borrowed: the parts from which a [`Lock`] is made and into which a codec writes it.
///
/// Times are Unix time in ms. `linger_ms` is `None` without LINGER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// The secret of whoever holds it, 1 to 512 bytes.
    pub token: &'a [u8],
    /// The public label, up to 512 bytes.
    pub holder: &'a [u8],
    /// The fencing number, above 0 and below 2^53.
    pub fence: u64,
    /// When it was granted.
    pub claimed_at_ms: i64,
    /// When it was last claimed or renewed.
    pub renewed_at_ms: i64,
    /// How often it was renewed.
    pub renewals: u32,
    /// What of the deadline remains at most when the holder's connection closes.
    pub linger_ms: Option<i64>,
}

/// The fixed part of a lock, in as few bytes as it goes: there may be millions. The bytes behind it hold: token, holder,
/// when it was granted (8 bytes, unless the fence tells), linger (8 bytes, if any), key.
#[derive(Debug)]
pub struct Head {
    /// The fence, which has 53 bits; above it the token's length less one, and two flags.
    fence_and_token: u64,
    renewed_at_ms: AtomicI64,
    renewals: AtomicU32,
    /// Where the registry keeps it; see `registry.rs`.
    place: AtomicU16,
    /// The holder's length, which never changes, and two flags.
    holder: AtomicU16,
}

/// Above these lies the token's length.
const FENCE_BITS: u32 = FENCE_LIMIT.trailing_zeros();
/// Of `fence_and_token`: the token is packed.
const HALVED: u64 = 1 << 63;
/// Of `fence_and_token`: there is a linger.
const LINGERS: u64 = 1 << 62;
/// Of `holder`: its length.
const HOLDER_LEN: u16 = (1 << 10) - 1;
/// Of `holder`: the time of the grant is not that of the fence, which is a time in microseconds as a rule.
const DATED: u16 = 1 << 14;
/// Of `holder`: the keyspace has let go of the lock.
const GONE: u16 = 1 << 15;

/// Bytes of a time among the bytes of a lock.
const TIME_BYTES: usize = size_of::<i64>();

/// When a lock of this fence was granted, if nothing else is said.
fn time_of(fence: u64) -> i64 {
    (fence / 1_000) as i64
}

/// The one allocation of a lock. Public for `server/value.rs` only, which makes it from the keyspace's pointer again.
pub type Shared = ThinArc<Head, u8>;

/// A lock, shared between the keyspace and the registry. Clones are the same lock.
#[derive(Clone)]
pub struct Lock(pub Shared);

impl Lock {
    /// A lock of `key`. The caller has checked that token and holder are within their limits; longer ones are cut.
    pub fn new(key: &[u8], grant: &Grant<'_>) -> Self {
        let token = grant.token.get(..*token::TOKEN_BYTES.end()).unwrap_or(grant.token);
        let holder = grant.holder.get(..token::HOLDER_BYTES_MAX).unwrap_or(grant.holder);
        let dated = (grant.claimed_at_ms != time_of(grant.fence)).then(|| grant.claimed_at_ms.to_ne_bytes());
        let linger = grant.linger_ms.map(i64::to_ne_bytes);
        let [claimed, linger] = [&dated, &linger].map(|time| time.as_ref().map_or(&[][..], |bytes| bytes));
        let rest = [holder, claimed, linger, key];
        let mut bytes = Bytes::new();
        bytes.resize(rest.iter().fold(token.len(), |sum, part| sum.saturating_add(part.len())), 0);
        let (token_len, is_halved) = token::pack(token, &mut bytes);
        let mut len = token_len;
        for part in rest {
            let end = len.saturating_add(part.len());
            if let Some(place) = bytes.get_mut(len..end) {
                place.copy_from_slice(part);
            }
            len = end;
        }
        bytes.truncate(len);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let head = Head {
            fence_and_token: grant.fence.min(FENCE_LIMIT.saturating_sub(1))
                | (token_len.saturating_sub(1) as u64) << FENCE_BITS
                | flag(is_halved, HALVED)
                | flag(grant.linger_ms.is_some(), LINGERS),
            renewed_at_ms: AtomicI64::new(grant.renewed_at_ms),
            renewals: AtomicU32::new(grant.renewals),
            place: AtomicU16::new(u16::MAX),
            holder: AtomicU16::new(holder.len() as u16 | if dated.is_some() { DATED } else { 0 }),
        };
        Self(ThinArc::from_header_and_slice(head, &bytes))
    }

    /// The same grant under another name: what RENAME and MOVE make of a lock.
    pub fn renamed(&self, key: &[u8]) -> Self {
        let mut token = Bytes::new();
        self.token_into(&mut token);
        Self::new(key, &self.grant(&token))
    }

    /// The parts of this lock, with `token` as it was unpacked by [`Lock::token_into`].
    pub fn grant<'a>(&'a self, token: &'a [u8]) -> Grant<'a> {
        Grant {
            token,
            holder: self.holder(),
            fence: self.fence(),
            claimed_at_ms: self.claimed_at_ms(),
            renewed_at_ms: self.renewed_at_ms(),
            renewals: self.renewals(),
            linger_ms: self.linger_ms(),
        }
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    fn part(&self, start: usize, len: usize) -> &[u8] {
        let end = start.saturating_add(len);
        self.0.slice.get(start..end).unwrap_or_default()
    }

    fn has(&self, flag: u64) -> bool {
        self.head().fence_and_token & flag != 0
    }

    fn holder_bits(&self) -> u16 {
        self.head().holder.load(Relaxed)
    }

    fn token_len(&self) -> usize {
        // Below its flags, one less than the length, which is 1 to 512.
        usize::from((self.head().fence_and_token >> FENCE_BITS) as u16 & 0x1ff).saturating_add(1)
    }

    fn stored_token(&self) -> &[u8] {
        self.part(0, self.token_len())
    }

    fn holder_len(&self) -> usize {
        usize::from(self.holder_bits() & HOLDER_LEN)
    }

    fn claimed_start(&self) -> usize {
        self.token_len().saturating_add(self.holder_len())
    }

    fn linger_start(&self) -> usize {
        let claimed = if self.holder_bits() & DATED == 0 { 0 } else { TIME_BYTES };
        self.claimed_start().saturating_add(claimed)
    }

    fn time_at(&self, start: usize) -> i64 {
        i64::from_ne_bytes(self.part(start, TIME_BYTES).try_into().unwrap_or_default())
    }

    /// The fencing number of this grant.
    pub fn fence(&self) -> u64 {
        self.head().fence_and_token & FENCE_LIMIT.saturating_sub(1)
    }

    /// When it was granted, Unix time in ms.
    pub fn claimed_at_ms(&self) -> i64 {
        if self.holder_bits() & DATED == 0 { time_of(self.fence()) } else { self.time_at(self.claimed_start()) }
    }

    /// When it was last claimed or renewed, Unix time in ms.
    pub fn renewed_at_ms(&self) -> i64 {
        self.head().renewed_at_ms.load(Relaxed)
    }

    /// How often it was renewed; stays at its greatest value rather than starting anew.
    pub fn renewals(&self) -> u32 {
        self.head().renewals.load(Relaxed)
    }

    /// Notes one renewal at `now_ms`.
    pub fn renew(&self, now_ms: i64) {
        self.head().renewed_at_ms.store(now_ms, Relaxed);
        self.head().renewals.store(self.renewals().saturating_add(1), Relaxed);
    }

    /// What of the deadline remains when the holder's connection closes, in ms.
    pub fn linger_ms(&self) -> Option<i64> {
        self.has(LINGERS).then(|| self.time_at(self.linger_start()))
    }

    /// The public label of the holder.
    pub fn holder(&self) -> &[u8] {
        self.part(self.token_len(), self.holder_len())
    }

    /// The name of the key that this lock was granted, or last found, under.
    pub fn key(&self) -> &[u8] {
        let linger = if self.has(LINGERS) { TIME_BYTES } else { 0 };
        let start = self.linger_start().saturating_add(linger);
        self.0.slice.get(start..).unwrap_or_default()
    }

    /// Whether `token` is the one that renews and releases this lock.
    pub fn token_is(&self, token: &[u8]) -> bool {
        token::is_same(self.stored_token(), self.has(HALVED), token)
    }

    /// Appends the token to `out`.
    pub fn token_into(&self, out: &mut Bytes) {
        token::unpack(self.stored_token(), self.has(HALVED), out);
    }

    /// Where the registry keeps this lock.
    pub(super) fn place(&self) -> u16 {
        self.head().place.load(Relaxed)
    }

    /// For the registry alone.
    pub(super) fn set_place(&self, place: u16) {
        self.head().place.store(place, Relaxed);
    }

    /// The keyspace has let go of this lock. Called on any thread, and the only thing that freeing a value does.
    pub fn set_gone(&self) {
        // Nothing else changes these bits.
        self.head().holder.store(self.holder_bits() | GONE, Relaxed);
    }

    /// Whether the keyspace has let go of it: else it lies under some key, perhaps under a new name.
    pub fn is_gone(&self) -> bool {
        self.holder_bits() & GONE != 0
    }

    /// The address that the keyspace keeps; the identity of this lock.
    pub fn address(&self) -> *const std::ffi::c_void {
        self.0.as_ptr()
    }

    /// Whether both are the same lock in memory.
    pub fn is(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    /// Bytes on the heap, without the allocator's own rounding.
    pub fn heap_bytes(&self) -> usize {
        size_of::<(Head, usize, usize)>().saturating_add(self.0.slice.len())
    }

    /// Gives the keyspace's share away as a pointer; `server/value.rs` takes it back.
    pub fn into_raw(self) -> *const std::ffi::c_void {
        self.0.into_raw()
    }
}

impl fmt::Debug for Lock {
    /// Without the token, which no log line may show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("key", &self.key()).field("fence", &self.fence()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::token::{HOLDER_BYTES_MAX, TOKEN_BYTES};
    use proptest::prelude::*;

    fn bytes(len: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), len)
    }

    fn token() -> impl Strategy<Value = Vec<u8>> {
        let ends = prop_oneof![Just(1), Just(2), Just(256), Just(511), Just(512)];
        let hex = ends.prop_map(|len: usize| vec![b'a'; len]);
        prop_oneof![bytes(TOKEN_BYTES), "[0-9a-f]{1,64}".prop_map(String::into_bytes), hex]
    }

    proptest! {
        #[test]
        fn a_lock_gives_back_what_it_was_made_of(
            token in token(),
            holder in prop_oneof![bytes(0..=HOLDER_BYTES_MAX), Just(vec![7; HOLDER_BYTES_MAX])],
            key in bytes(0..=300),
            fence in prop_oneof![1..FENCE_LIMIT, Just(FENCE_LIMIT - 1)],
            claimed in prop_oneof![Just(None), (0..=i64::MAX).prop_map(Some)],
            renewed_at_ms in 0..=i64::MAX,
            renewals: u32,
            linger_ms in prop::option::of(0..=i64::MAX),
        ) {
            let claimed_at_ms = claimed.unwrap_or((fence / 1_000) as i64);
            let grant = Grant { token: &token, holder: &holder, fence, claimed_at_ms, renewed_at_ms, renewals, linger_ms };
            let lock = Lock::new(&key, &grant);
            for is_gone in [false, true] {
                prop_assert_eq!(lock.is_gone(), is_gone);
                let mut out = Bytes::new();
                lock.token_into(&mut out);
                prop_assert_eq!(lock.grant(&out), grant);
                prop_assert_eq!(lock.key(), &key[..]);
                prop_assert!(lock.token_is(&token));
                prop_assert!(!lock.token_is(&[&token[..], b"x"].concat()));
                lock.set_gone();
            }
            lock.renew(7);
            prop_assert_eq!((lock.renewed_at_ms(), lock.renewals()), (7, renewals.saturating_add(1)));
            let saved = if claimed.is_none() { TIME_BYTES } else { 0 };
            let parts = token.len() + holder.len() + key.len() + TIME_BYTES * 2 - saved;
            prop_assert!(lock.heap_bytes() <= 40 + parts);
        }
    }
}
