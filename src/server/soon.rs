//! Work that a callback finds due and must not do itself, as soon as the server permits it.
//!
//! A server that has post-notification jobs (7.2, Valkey) runs them at the end of the command that caused them, before any
//! other command and as one unit with it for replicas and AOF. Redis 7.0 has none: there the work is done before the next
//! command begins (`before_command`), or by the timer if no command comes. The timer does it too where a job is refused
//! (loading, a replica, a paused server).

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redis_module::raw::{self, RedisModuleCtx};

use super::ctx::{self, Ctx};
use super::main_thread::state;
use super::{OK, clock, timer};
use crate::changes::tick;

/// A job is on its way.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The module's own call is on its way, in which the work is to be done.
static CALLED: AtomicBool = AtomicBool::new(false);
/// After a refusal the work is left to the timer until then, monotonic ms: the reason seldom passes in between.
static REFUSED_UNTIL_MS: AtomicI64 = AtomicI64::new(0);
/// For so long, in ms.
const REFUSED_MS: i64 = 5;

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
    tick::after_command(unsafe { Ctx::new(ctx) });
}

/// Called before a command begins, in a context that must not write. Where there are no jobs and something is due, the
/// module calls a command of its own, in which it may: what that changes is a unit of its own for replicas and AOF, in
/// front of the command that is about to begin.
pub(super) fn before_command() {
    // SAFETY: read on the main thread; the table was written at load.
    if unsafe { raw::RedisModule_AddPostNotificationJob }.is_some() {
        return;
    }
    let is_due = state(|state| state.waiting.has_dirty() || state.waiting.has_named());
    if !is_due || clock::monotonic_ms() < REFUSED_UNTIL_MS.load(Relaxed) {
        return;
    }
    let ctx = timer::detached();
    // Within a transaction or script this is no place between two commands, nor within another module's command. Nothing
    // tells of the last, so that it is enough that there is another module.
    if !ctx.flags().is_between_commands() || !ctx.may_write() || !ctx.has_one_module() {
        return;
    }
    CALLED.store(true, Relaxed);
    if !ctx.asks_to_write() {
        REFUSED_UNTIL_MS.store(clock::monotonic_ms().saturating_add(REFUSED_MS), Relaxed);
    }
    CALLED.store(false, Relaxed);
}

/// Does the work, if `ctx` is that of the module's own call.
pub fn within_own_call(ctx: Ctx<'_>) {
    if CALLED.swap(false, Relaxed) {
        // That this runs is the answer to what `after_command` would ask.
        ctx::note_takes_writes();
        tick::after_command(ctx.of_callback());
    }
}
