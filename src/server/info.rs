//! The section that `INFO prlock` prints.

use std::ffi::{CStr, c_int};

use redis_module::raw::{RedisModuleCtx, RedisModuleInfoCtx};

use super::OK;
use super::main_thread::state;

/// Registers the section. False if the server refuses.
pub(super) fn register(ctx: *mut RedisModuleCtx) -> bool {
    // SAFETY: a live context in OnLoad.
    api!(RedisModule_RegisterInfoFunc(ctx, Some(print))) == Some(OK)
}

unsafe extern "C" fn print(ctx: *mut RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        // A crashed server's state is not looked at.
        return;
    }
    // SAFETY: the context of this call; a refusal says that the section was not asked for.
    if api!(RedisModule_InfoAddSection(ctx, c"locks".as_ptr())) != Some(OK) {
        return;
    }
    let fields = state(|state| state.fields().to_vec());
    for (name, value) in fields {
        let name: &CStr = name;
        // SAFETY: as above; the server copies the name.
        let _ = api!(RedisModule_InfoAddFieldULongLong(ctx, name.as_ptr(), value));
    }
}
