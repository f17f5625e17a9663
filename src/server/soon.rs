//! Work that a callback finds due and must not do itself, as soon as the server permits it.
//!
//! A server that has post-notification jobs (7.2, Valkey) runs them at the end of the command that caused them, before any
//! other command and as one unit with it for replicas and AOF. Without them, and where they are refused (loading, a
//! replica, a paused server), the timer does the work in the same turn of the event loop, after the commands of that turn.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw::RedisModuleCtx;

use super::ctx::Ctx;
use super::{OK, timer};

/// A job is on its way.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Makes `changes::tick` look after what is due.
pub fn ask() {
    timer::arm(0);
    if ASKED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: a live context; the job takes no data.
    let status = api!(RedisModule_AddPostNotificationJob(timer::detached().raw(), Some(run), ptr::null_mut(), None));
    if status != Some(OK) {
        ASKED.store(false, Relaxed);
    }
}

unsafe extern "C" fn run(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    ASKED.store(false, Relaxed);
    // SAFETY: the server's context for this call.
    crate::changes::tick::after_command(unsafe { Ctx::new(ctx) });
}
