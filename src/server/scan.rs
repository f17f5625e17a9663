//! A walk over a whole database: for locks whose new name nobody told the module.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw::{RedisModuleCtx, RedisModuleKey, RedisModuleString};

use super::ctx::Ctx;
use super::lock_type;
use super::string::Str;

/// Names of all locks in the selected database, past their deadline or not.
pub fn lock_names(ctx: Ctx<'_>) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let cursor = api!(RedisModule_ScanCursorCreate()).unwrap_or(ptr::null_mut());
    if cursor.is_null() {
        return names;
    }
    let data = (&raw mut names).cast::<c_void>();
    // SAFETY: a live context and cursor; `found` gets `data` during these calls only. Each call takes one step, and 0
    // says that it was the last.
    while api!(RedisModule_Scan(ctx.raw(), cursor, Some(found), data)) == Some(1) {}
    // SAFETY: ours, freed once.
    let _ = api!(RedisModule_ScanCursorDestroy(cursor));
    names
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
    // SAFETY: `data` is the vector of `lock_names`; the name lives during this call.
    if let Some(names) = unsafe { data.cast::<Vec<Vec<u8>>>().as_mut() } {
        names.push(unsafe { Str::new(name) }.bytes().to_vec());
    }
}
