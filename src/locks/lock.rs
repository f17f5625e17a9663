//! One lock as it lies in memory: who holds it, since when, and its key's name, in one allocation.
//!
//! The keyspace and the registry share a lock by a reference count, so neither can point at memory that the other gave
//! back. That matters, since the server frees values on other threads too (FLUSHALL ASYNC): whoever lets go last frees,
//! and what changes after the grant is atomic.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};

use triomphe::ThinArc;

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

/// The fixed part of a lock. The bytes behind it hold: token, holder, linger (8 bytes, if any), key.
#[derive(Debug)]
pub struct Head {
    fence: u64,
    claimed_at_ms: i64,
    renewed_at_ms: AtomicI64,
    renewals: AtomicU32,
    /// Where the registry keeps it; see `registry.rs`.
    place: AtomicU32,
    token_len: u16,
    holder_len: u16,
    token_halved: bool,
    lingers: bool,
    /// The keyspace has let go of it.
    gone: AtomicBool,
}

const LINGER_BYTES: usize = size_of::<i64>();

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
        let linger = grant.linger_ms.map(i64::to_ne_bytes);
        let linger = linger.as_ref().map_or(&[][..], |bytes| bytes);
        let mut bytes = Bytes::new();
        let most = token.len().saturating_add(holder.len()).saturating_add(linger.len()).saturating_add(key.len());
        bytes.resize(most, 0);
        let (token_len, token_halved) = token::pack(token, &mut bytes);
        let mut len = token_len;
        for part in [holder, linger, key] {
            let end = len.saturating_add(part.len());
            if let Some(place) = bytes.get_mut(len..end) {
                place.copy_from_slice(part);
            }
            len = end;
        }
        bytes.truncate(len);
        let head = Head {
            fence: grant.fence,
            claimed_at_ms: grant.claimed_at_ms,
            renewed_at_ms: AtomicI64::new(grant.renewed_at_ms),
            renewals: AtomicU32::new(grant.renewals),
            place: AtomicU32::new(u32::MAX),
            token_len: token_len as u16,
            holder_len: holder.len() as u16,
            token_halved,
            lingers: grant.linger_ms.is_some(),
            gone: AtomicBool::new(false),
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

    fn holder_start(&self) -> usize {
        usize::from(self.head().token_len)
    }

    fn linger_start(&self) -> usize {
        self.holder_start().saturating_add(usize::from(self.head().holder_len))
    }

    /// The fencing number of this grant.
    pub fn fence(&self) -> u64 {
        self.head().fence
    }

    /// When it was granted, Unix time in ms.
    pub fn claimed_at_ms(&self) -> i64 {
        self.head().claimed_at_ms
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
        if !self.head().lingers {
            return None;
        }
        let bytes = self.part(self.linger_start(), LINGER_BYTES);
        Some(i64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// The public label of the holder.
    pub fn holder(&self) -> &[u8] {
        self.part(self.holder_start(), usize::from(self.head().holder_len))
    }

    /// The name of the key that this lock was granted, or last found, under.
    pub fn key(&self) -> &[u8] {
        let linger = if self.head().lingers { LINGER_BYTES } else { 0 };
        let start = self.linger_start().saturating_add(linger);
        self.0.slice.get(start..).unwrap_or_default()
    }

    /// Whether `token` is the one that renews and releases this lock.
    pub fn token_is(&self, token: &[u8]) -> bool {
        let stored = self.part(0, usize::from(self.head().token_len));
        token::is_same(stored, self.head().token_halved, token)
    }

    /// Appends the token to `out`.
    pub fn token_into(&self, out: &mut Bytes) {
        token::unpack(self.part(0, usize::from(self.head().token_len)), self.head().token_halved, out);
    }

    /// Where the registry keeps this lock.
    pub(super) fn place(&self) -> u32 {
        self.head().place.load(Relaxed)
    }

    /// For the registry alone.
    pub(super) fn set_place(&self, place: u32) {
        self.head().place.store(place, Relaxed);
    }

    /// The keyspace has let go of this lock. Called on any thread, and the only thing that freeing a value does.
    pub fn set_gone(&self) {
        self.head().gone.store(true, Relaxed);
    }

    /// Whether the keyspace has let go of it: else it lies under some key, perhaps under a new name.
    pub fn is_gone(&self) -> bool {
        self.head().gone.load(Relaxed)
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
