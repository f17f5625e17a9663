//! The module's one timer, and the context that outlives every command.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed};

use redis_module::raw::RedisModuleCtx;

use super::clock;
use super::ctx::Ctx;

static DETACHED: AtomicPtr<RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());
/// The armed timer's id; 0 for none.
static ARMED: AtomicU64 = AtomicU64::new(0);
/// When it is due, monotonic ms.
static DUE_MS: AtomicI64 = AtomicI64::new(0);

/// Makes the detached context. Called once, at load.
pub(super) fn start(ctx: *mut RedisModuleCtx) {
    // SAFETY: a live context; the new one lives as long as the server, or until `stop`.
    DETACHED.store(api!(RedisModule_GetDetachedThreadSafeContext(ctx)).unwrap_or(ptr::null_mut()), Relaxed);
}

/// Gives the detached context back, after a load that was refused.
pub(super) fn stop() {
    let ctx = DETACHED.swap(ptr::null_mut(), Relaxed);
    if !ctx.is_null() {
        // SAFETY: made by `start`, given back once, and no timer was armed.
        let _ = api!(RedisModule_FreeThreadSafeContext(ctx));
    }
}

/// A context without a client, for questions and timers; it must not write.
pub fn detached() -> Ctx<'static> {
    // SAFETY: made at load and not given back while the module is loaded.
    unsafe { Ctx::new(DETACHED.load(Relaxed)) }
}

/// Makes `changes::tick` run in `in_ms`, or earlier if it is due earlier anyway.
pub fn arm(in_ms: i64) {
    let due_ms = clock::monotonic_ms().saturating_add(in_ms);
    let armed = ARMED.load(Relaxed);
    if armed != 0 {
        if DUE_MS.load(Relaxed) <= due_ms {
            return;
        }
        // SAFETY: an armed timer of this module, not the one that is firing: `fire` clears the id first.
        let _ = api!(RedisModule_StopTimer(DETACHED.load(Relaxed), armed, ptr::null_mut()));
    }
    // SAFETY: the callback takes no data.
    let id = api!(RedisModule_CreateTimer(DETACHED.load(Relaxed), in_ms.max(0), Some(fire), ptr::null_mut()));
    ARMED.store(id.unwrap_or_default(), Relaxed);
    DUE_MS.store(due_ms, Relaxed);
}

/// Whether the timer is overdue by more than `ms`: the server counts a timer by the wall clock, so that one set back
/// delays it. The server's regular cron asks this and mends it.
pub fn is_overdue_by(ms: i64) -> bool {
    ARMED.load(Relaxed) != 0 && clock::monotonic_ms() > DUE_MS.load(Relaxed).saturating_add(ms)
}

/// Arms an overdue timer anew.
pub fn rearm() {
    let armed = ARMED.swap(0, Relaxed);
    if armed != 0 {
        // SAFETY: as in `arm`.
        let _ = api!(RedisModule_StopTimer(DETACHED.load(Relaxed), armed, ptr::null_mut()));
    }
    arm(0);
}

unsafe extern "C" fn fire(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    ARMED.store(0, Relaxed);
    // SAFETY: the server's context for this call.
    crate::changes::tick::tick(unsafe { Ctx::new(ctx) });
}
