//! A look at each command before it runs, while somebody waits: the server's command filter.
//!
//! It changes no command. The server calls it for clients, for calls within scripts, and for other modules' calls.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::{self, RedisModuleCommandFilter, RedisModuleCommandFilterCtx};

use super::string::Str;
use super::{soon, timer};
use crate::changes::heed;

/// Null while nobody waits.
static FILTER: AtomicPtr<RedisModuleCommandFilter> = AtomicPtr::new(ptr::null_mut());

/// Begins or ends the look. Only while somebody waits, since it costs every command of the server a call. A server that
/// refuses goes without: what would be heard, the look-round finds a little later.
pub fn watch(on: bool) {
    let filter = FILTER.load(Relaxed);
    if on != filter.is_null() {
        return;
    }
    // SAFETY: a live context of this module; the callback is a function of this module, which is never unloaded.
    let filter = if on {
        let flags = raw::REDISMODULE_CMDFILTER_NOSELF as c_int;
        api!(RedisModule_RegisterCommandFilter(timer::detached().raw(), Some(before_command), flags))
            .unwrap_or(ptr::null_mut())
    } else {
        // SAFETY: registered above, and not the one that is running: this is called by commands and the timer.
        let _ = api!(RedisModule_UnregisterCommandFilter(timer::detached().raw(), filter));
        ptr::null_mut()
    };
    FILTER.store(filter, Relaxed);
}

unsafe extern "C" fn before_command(passing: *mut RedisModuleCommandFilterCtx) {
    soon::before_command();
    let word = |index| {
        // SAFETY: the filter's context of this call.
        let raw = api!(RedisModule_CommandFilterArgGet(passing, index)).filter(|raw| !raw.is_null())?;
        // SAFETY: the words live during this call, since nothing here changes them.
        Some(unsafe { Str::new(raw) }.bytes())
    };
    let count = api!(RedisModule_CommandFilterArgsCount(passing)).unwrap_or_default();
    if heed::command(word(0).unwrap_or_default(), (1..count).filter_map(word)) {
        soon::ask();
    }
}
