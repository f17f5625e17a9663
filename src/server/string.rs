//! Strings of the server.

use std::ffi::c_char;
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw::{RedisModuleCallReply, RedisModuleString};

/// A string that the server owns for as long as `'a`.
#[derive(Clone, Copy)]
pub struct Str<'a> {
    raw: *mut RedisModuleString,
    lives: PhantomData<&'a RedisModuleString>,
}

impl<'a> Str<'a> {
    /// # Safety
    /// `raw` is a string of the server that lives as long as `'a` and is not changed meanwhile.
    pub(super) const unsafe fn new(raw: *mut RedisModuleString) -> Self {
        Self { raw, lives: PhantomData }
    }

    /// For calls of the API.
    pub(super) const fn raw(self) -> *mut RedisModuleString {
        self.raw
    }

    /// Its bytes, any bytes.
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: `raw` is a live string; `len` outlives the call.
        match api!(RedisModule_StringPtrLen(self.raw, &raw mut len)) {
            // SAFETY: the server gives `len` bytes at `data`, which live as long as the string.
            Some(data) if !data.is_null() => unsafe { std::slice::from_raw_parts(data.cast(), len) },
            _ => &[],
        }
    }
}

/// A string that is given back when it goes out of scope.
pub struct OwnedStr(*mut RedisModuleString);

impl OwnedStr {
    /// A new string of the server with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let data: *const c_char = bytes.as_ptr().cast();
        // SAFETY: the server copies `len` bytes from `data`; without a context the string is ours to free.
        Self(api!(RedisModule_CreateString(ptr::null_mut(), data, bytes.len())).unwrap_or(ptr::null_mut()))
    }

    /// # Safety
    /// `raw` is a string with one reference that is ours, or null.
    pub(super) const unsafe fn from_raw(raw: *mut RedisModuleString) -> Self {
        Self(raw)
    }

    /// A look at it.
    pub fn as_str(&self) -> Str<'_> {
        // SAFETY: the string lives as long as `self`.
        unsafe { Str::new(self.0) }
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: our one reference, given back once, without a context as it was taken.
            let _ = api!(RedisModule_FreeString(ptr::null_mut(), self.0));
        }
    }
}

/// The bytes of a live reply that is a string or an error, for as long as the reply lives; none of another one.
pub(super) fn of_reply<'r>(reply: *mut RedisModuleCallReply) -> &'r [u8] {
    let mut len = 0;
    match api!(RedisModule_CallReplyStringPtr(reply, &raw mut len)) {
        // SAFETY: the reply holds `len` bytes at `data` until it is freed.
        Some(data) if !data.is_null() => unsafe { std::slice::from_raw_parts(data.cast(), len) },
        _ => &[],
    }
}
