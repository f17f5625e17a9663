//! One lock as it lies in memory: who holds it, since when, and its key's name, in one allocation.
//!
//! The keyspace and the registry share a lock by a reference count, so neither can point at memory that the other gave
//! back. That matters, since the server frees values on other threads too (FLUSHALL ASYNC): whoever lets go last frees,
//! and what changes after the grant is atomic.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

use triomphe::ThinArc;

use super::fence::FENCE_LIMIT;
use super::holders::Holder;
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

/// The fixed part of a lock, in as few bytes as it goes: there may be millions. The bytes behind it hold: the token with its
/// length; the holder with its length, unless it is shared; words of 8 bytes, as a rule none: when it was granted, unless
/// the fence tells, time and number of the base of its renewals, unless that is the grant, and linger; the key.
#[derive(Debug)]
pub struct Head {
    /// The fence, which has 53 bits, and flags. One flag changes, on any thread; see [`Lock::set_gone`].
    fence: AtomicU64,
    /// When it was last claimed or renewed, in ms after the base.
    renewed_after_ms: AtomicI32,
    /// Where the registry keeps it (see `registry.rs`), and above that how many renewals more there were than at the base.
    place_and_renewals: AtomicU32,
    /// The holder, where other locks have the same.
    holder: Option<Holder>,
}

/// Of `fence`: the token is packed.
const HALVED: u64 = 1 << 63;
/// Of `fence`: there is a linger.
const LINGERS: u64 = 1 << 62;
/// Of `fence`: the time of the grant is not that of the fence, which is a time in microseconds as a rule.
const DATED: u64 = 1 << 61;
/// Of `fence`: renewals have another base than the grant.
const BASED: u64 = 1 << 60;
/// Of `fence`: the keyspace has let go of the lock.
const GONE: u64 = 1 << 59;
/// Of `place_and_renewals`: the place.
const PLACE_BITS: u32 = 10;
/// The greatest place, which a new lock has.
pub(super) const PLACE_MAX: u16 = (1 << PLACE_BITS) - 1;
/// Renewals behind the base that can be told.
const RENEWALS_MAX: u32 = u32::MAX >> PLACE_BITS;

/// Bytes of a time, or of a number of renewals, between holder and key.
const WORD_BYTES: usize = size_of::<i64>();

/// When a lock of this fence was granted, if nothing else is said.
pub(super) fn time_of(fence: u64) -> i64 {
    (fence / 1_000) as i64
}

/// The one allocation of a lock. Public for `server/value.rs` only, which makes it from the keyspace's pointer again.
pub type Shared = ThinArc<Head, u8>;

/// A lock, shared between the keyspace and the registry. Clones are the same lock.
#[derive(Clone)]
pub struct Lock(pub Shared);

impl Lock {
    /// A lock of `key` that holds all its parts itself.
    #[cfg(test)]
    pub fn new(key: &[u8], grant: &Grant<'_>) -> Self {
        Self::with_holder(key, grant, None)
    }

    /// A lock of `key`. The label that is shared, if one is, is the grant's holder. The caller has checked that token and
    /// holder are within their limits; longer ones are cut.
    pub fn with_holder(key: &[u8], grant: &Grant<'_>, shared: Option<Holder>) -> Self {
        Self::made(key, grant, shared, |bytes| {
            let token = grant.token.get(..*token::TOKEN_BYTES.end()).unwrap_or(grant.token);
            token::pack(token, bytes)
        })
    }

    /// The same, but its token is this one, and not the grant's.
    pub fn with_kept_token(key: &[u8], grant: &Grant<'_>, token: token::Kept<'_>, shared: Option<Holder>) -> Self {
        Self::made(key, grant, shared, |bytes| token.put(bytes))
    }

    /// `put_token` appends the token as it is kept, and returns whether it is halved.
    fn made(key: &[u8], grant: &Grant<'_>, shared: Option<Holder>, put_token: impl FnOnce(&mut Bytes) -> bool) -> Self {
        let mut flags = 0;
        let mut bytes = Bytes::new();
        if put_token(&mut bytes) {
            flags |= HALVED;
        }
        if shared.is_none() {
            let holder = grant.holder.get(..token::HOLDER_BYTES_MAX).unwrap_or(grant.holder);
            token::put_len(holder.len(), &mut bytes);
            bytes.extend_from_slice(holder);
        }
        if grant.claimed_at_ms != time_of(grant.fence) {
            flags |= DATED;
            bytes.extend_from_slice(&grant.claimed_at_ms.to_ne_bytes());
        }
        let after_ms = i32::try_from(grant.renewed_at_ms.saturating_sub(grant.claimed_at_ms)).ok();
        let after = after_ms.filter(|_| grant.renewals <= RENEWALS_MAX).map(|ms| (ms, grant.renewals));
        if after.is_none() {
            flags |= BASED;
            bytes.extend_from_slice(&grant.renewed_at_ms.to_ne_bytes());
            bytes.extend_from_slice(&i64::from(grant.renewals).to_ne_bytes());
        }
        if let Some(ms) = grant.linger_ms {
            flags |= LINGERS;
            bytes.extend_from_slice(&ms.to_ne_bytes());
        }
        bytes.extend_from_slice(key);
        let (after_ms, renewals) = after.unwrap_or_default();
        let head = Head {
            fence: AtomicU64::new(grant.fence.min(FENCE_LIMIT.saturating_sub(1)) | flags),
            renewed_after_ms: AtomicI32::new(after_ms),
            place_and_renewals: AtomicU32::new(renewals << PLACE_BITS | u32::from(PLACE_MAX)),
            holder: shared,
        };
        Self(ThinArc::from_header_and_slice(head, &bytes))
    }

    /// The same grant under another name: what RENAME and MOVE make of a lock.
    pub fn renamed(&self, key: &[u8]) -> Self {
        let mut token = Bytes::new();
        self.token_into(&mut token);
        Self::with_holder(key, &self.grant(&token), self.head().holder.clone())
    }

    /// The same grant, renewed once more at `now_ms`: where [`Lock::renew`] has come to its end.
    pub fn renewed(&self, now_ms: i64) -> Self {
        let mut token = Bytes::new();
        self.token_into(&mut token);
        let renewals = self.renewals().saturating_add(1);
        let grant = Grant { renewed_at_ms: now_ms, renewals, ..self.grant(&token) };
        Self::with_holder(self.key(), &grant, self.head().holder.clone())
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

    fn flags(&self) -> u64 {
        self.head().fence.load(Relaxed)
    }

    fn has(&self, flag: u64) -> bool {
        self.flags() & flag != 0
    }

    fn stored_token(&self) -> &[u8] {
        token::take_part(&self.0.slice).0
    }

    /// The holder, and what follows on it, or on the token.
    fn holder_and_rest(&self) -> (&[u8], &[u8]) {
        let (_, rest) = token::take_part(&self.0.slice);
        match &self.head().holder {
            Some(shared) => (shared.label(), rest),
            None => token::take_part(rest),
        }
    }

    /// How many words there are between holder and key for these flags.
    fn words(&self, flags: u64) -> usize {
        let flags = self.flags() & flags;
        [(DATED, 1), (BASED, 2), (LINGERS, 1)]
            .iter()
            .filter(|(flag, _)| flags & flag != 0)
            .map(|(_, words)| words)
            .sum()
    }

    fn word(&self, index: usize) -> i64 {
        let rest = self.holder_and_rest().1.get(index.saturating_mul(WORD_BYTES)..).unwrap_or_default();
        rest.first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes))
    }

    /// The time and the number of renewals from which on renewals are counted.
    fn base(&self) -> (i64, u32) {
        if !self.has(BASED) {
            return (self.claimed_at_ms(), 0);
        }
        let index = self.words(DATED);
        (self.word(index), self.word(index.saturating_add(1)) as u32)
    }

    /// The fencing number of this grant.
    pub fn fence(&self) -> u64 {
        self.flags() & FENCE_LIMIT.saturating_sub(1)
    }

    /// When it was granted, Unix time in ms.
    pub fn claimed_at_ms(&self) -> i64 {
        if self.has(DATED) { self.word(0) } else { time_of(self.fence()) }
    }

    /// When it was last claimed or renewed, Unix time in ms.
    pub fn renewed_at_ms(&self) -> i64 {
        self.base().0.saturating_add(self.head().renewed_after_ms.load(Relaxed).into())
    }

    /// How often it was renewed; stays at its greatest value rather than starting anew.
    pub fn renewals(&self) -> u32 {
        self.base().1.saturating_add(self.head().place_and_renewals.load(Relaxed) >> PLACE_BITS)
    }

    /// Notes one renewal at `now_ms`. False if that can't be noted here: weeks after the base, or after millions of
    /// renewals. Then [`Lock::renewed`] makes a lock of which it can.
    #[must_use]
    pub fn renew(&self, now_ms: i64) -> bool {
        let place = self.head().place_and_renewals.load(Relaxed);
        let (Ok(after_ms), Some(place)) =
            (i32::try_from(now_ms.saturating_sub(self.base().0)), place.checked_add(1 << PLACE_BITS))
        else {
            return false;
        };
        self.head().renewed_after_ms.store(after_ms, Relaxed);
        self.head().place_and_renewals.store(place, Relaxed);
        true
    }

    /// What of the deadline remains when the holder's connection closes, in ms.
    pub fn linger_ms(&self) -> Option<i64> {
        self.has(LINGERS).then(|| self.word(self.words(DATED | BASED)))
    }

    /// The public label of the holder.
    pub fn holder(&self) -> &[u8] {
        self.holder_and_rest().0
    }

    /// The name of the key that this lock was granted, or last found, under.
    pub fn key(&self) -> &[u8] {
        let words = self.words(DATED | BASED | LINGERS).saturating_mul(WORD_BYTES);
        self.holder_and_rest().1.get(words..).unwrap_or_default()
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
        self.head().place_and_renewals.load(Relaxed) as u16 & PLACE_MAX
    }

    /// For the registry alone.
    pub(super) fn set_place(&self, place: u16) {
        let renewals = self.head().place_and_renewals.load(Relaxed) & !u32::from(PLACE_MAX);
        self.head().place_and_renewals.store(renewals | u32::from(place & PLACE_MAX), Relaxed);
    }

    /// The keyspace has let go of this lock. Called on any thread, and the only thing that freeing a value does.
    pub fn set_gone(&self) {
        // Nothing else changes these bits.
        self.head().fence.store(self.flags() | GONE, Relaxed);
    }

    /// Whether the keyspace has let go of it: else it lies under some key, perhaps under a new name.
    pub fn is_gone(&self) -> bool {
        self.has(GONE)
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
            renewed in prop_oneof![(0..=i64::MAX).prop_map(Some), Just(None)],
            renewals in prop_oneof![0..10u32, any::<u32>(), Just(RENEWALS_MAX), Just(RENEWALS_MAX + 1)],
            linger_ms in prop::option::of(0..=i64::MAX),
            now_ms in 0..=i64::MAX,
            is_shared: bool,
        ) {
            let claimed_at_ms = claimed.unwrap_or((fence / 1_000) as i64);
            let renewed_at_ms = renewed.unwrap_or(claimed_at_ms);
            let grant = Grant { token: &token, holder: &holder, fence, claimed_at_ms, renewed_at_ms, renewals, linger_ms };
            let shared = is_shared.then(|| Holder::new(&holder));
            let lock = Lock::with_holder(&key, &grant, shared);
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
            let later = if lock.renew(now_ms) { lock.clone() } else { lock.renewed(now_ms) };
            let expected = Grant { renewed_at_ms: now_ms, renewals: renewals.saturating_add(1), ..grant };
            prop_assert_eq!((later.grant(&token), later.key()), (expected, &key[..]));
            prop_assert!(later.token_is(&token));
            let words = [claimed.is_some(), linger_ms.is_some()].map(|has| if has { WORD_BYTES } else { 0 });
            let based = if renewed.is_some() || renewals > RENEWALS_MAX { WORD_BYTES * 2 } else { 0 };
            let label = if is_shared { 0 } else { holder.len() + 2 };
            let parts = token.len() + 2 + label + key.len() + based + words.iter().sum::<usize>();
            prop_assert!(lock.heap_bytes() <= 40 + parts);
        }
    }

    #[test]
    fn a_renewal_weeks_or_millions_later_asks_for_another_lock() {
        const DAY_MS: i64 = 86_400_000;
        let grant = Grant {
            token: b"t",
            holder: b"worker",
            fence: 1_796_085_061_440_021,
            claimed_at_ms: 1_796_085_061_440,
            renewed_at_ms: 1_796_085_061_440,
            renewals: RENEWALS_MAX - 1,
            linger_ms: Some(5),
        };
        let lock = Lock::new(b"k", &grant);
        let claimed_at_ms = grant.claimed_at_ms;
        assert!(lock.renew(claimed_at_ms + 24 * DAY_MS));
        assert!(!lock.renew(claimed_at_ms + 24 * DAY_MS));
        let few = Lock::new(b"k", &Grant { renewals: 1, ..grant });
        assert!(!few.renew(claimed_at_ms + 25 * DAY_MS));
        // A clock that was set back.
        assert!(few.renew(claimed_at_ms - DAY_MS));
        assert_eq!((few.renewed_at_ms(), few.renewals()), (claimed_at_ms - DAY_MS, 2));
        let later = few.renewed(claimed_at_ms + 25 * DAY_MS);
        assert!(later.renew(claimed_at_ms + 49 * DAY_MS));
        assert_eq!((later.renewed_at_ms(), later.renewals()), (claimed_at_ms + 49 * DAY_MS, 4));
        assert_eq!((later.claimed_at_ms(), later.linger_ms()), (claimed_at_ms, Some(5)));
    }
}
