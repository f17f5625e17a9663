//! A lock as the keyspace keeps it: a pointer that stands for one share of a [`Lock`].

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::locks::lock::{Lock, Shared};

/// Gives a share to the keyspace.
pub(super) fn give(lock: &Lock) -> *mut c_void {
    lock.clone().into_raw().cast_mut()
}

/// Takes the keyspace's share back.
///
/// # Safety
/// `value` came from [`give`] and is not used by the keyspace any more.
pub(super) unsafe fn take(value: *mut c_void) -> Lock {
    // SAFETY: the caller's contract is that of `ThinArc::from_raw`.
    Lock(unsafe { Shared::from_raw(value) })
}

/// A look at the keyspace's share, which stays the keyspace's, for as long as `'k`: it costs no count up and down.
pub struct Seen<'k>(ManuallyDrop<Lock>, PhantomData<&'k ()>);

impl Seen<'_> {
    /// # Safety
    /// `value` came from [`give`], and the keyspace keeps it for as long as `'k`.
    pub(super) unsafe fn new(value: *mut c_void) -> Self {
        // SAFETY: as above; the share is never dropped through this.
        Self(ManuallyDrop::new(Lock(unsafe { Shared::from_raw(value) })), PhantomData)
    }
}

impl Deref for Seen<'_> {
    type Target = Lock;

    fn deref(&self) -> &Lock {
        &self.0
    }
}
