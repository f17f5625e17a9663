//! A walk over a whole database: for locks whose new name nobody told the module.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw::{RedisModuleCtx, RedisModuleKey, RedisModuleString};

use super::ctx::Ctx;
use super::lock_type;
use super::string::Str;
use super::value::Seen;
use crate::locks::lock::Lock;
use crate::locks::registry::Registry;

/// A lock, and the name under which it lies.
type Named = (Vec<u8>, Lock);

/// All locks in the selected database that the registry does not know, past their deadline or not.
pub fn unregistered(ctx: Ctx<'_>) -> Vec<Named> {
    let mut locks: Vec<Named> = Vec::new();
    let cursor = api!(RedisModule_ScanCursorCreate()).unwrap_or(ptr::null_mut());
    if cursor.is_null() {
        return locks;
    }
    let data = (&raw mut locks).cast::<c_void>();
    // SAFETY: a live context and cursor; `found` gets `data` during these calls only. Each call takes one step, and 0
    // says that it was the last.
    while api!(RedisModule_Scan(ctx.raw(), cursor, Some(found), data)) == Some(1) {}
    // SAFETY: ours, freed once.
    let _ = api!(RedisModule_ScanCursorDestroy(cursor));
    locks
}

unsafe extern "C" fn found(
    _ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    key: *mut RedisModuleKey,
    data: *mut c_void,
) {
    if key.is_null() {
        return;
    }
    // SAFETY: the server opened the key for this call.
    let kind = api!(RedisModule_ModuleTypeGetType(key)).unwrap_or(ptr::null_mut());
    if kind.is_null() || !lock_type::is_ours(kind) {
        return;
    }
    let value = api!(RedisModule_ModuleTypeGetValue(key)).unwrap_or(ptr::null_mut());
    if value.is_null() {
        return;
    }
    // SAFETY: a value of our type, kept by the keyspace during this call.
    let lock = unsafe { Seen::new(value) };
    if Registry::is_registered(&lock) {
        return;
    }
    // SAFETY: `data` is the vector of `unregistered`; the name lives during this call.
    if let Some(locks) = unsafe { data.cast::<Vec<Named>>().as_mut() } {
        locks.push((unsafe { Str::new(name) }.bytes().to_vec(), lock.clone()));
    }
}
