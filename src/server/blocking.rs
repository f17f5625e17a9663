//! Clients that wait.
//!
//! The server's own wait deadlines are not used: on 7.0 and 7.2 a client that is served in the very moment of its deadline
//! would get no reply. The module's timer ends waits, so each handle is given back exactly once: by a grant, by the end of
//! the wait, or by the client's leaving.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use redis_module::raw::{RedisModuleBlockedClient, RedisModuleCtx, RedisModuleString};

use super::ctx::Ctx;
use super::main_thread::state;
use super::{OK, timer};
use crate::locks::Bytes;
use crate::locks::lock::Lock;
use crate::locks::state::Job;

/// How a wait ended.
pub enum Outcome {
    Granted { db: i32, lock: Lock, token: Bytes },
    TimedOut,
    Failed(&'static CStr),
}

/// What travels with an unblocked client to its reply.
struct Parcel {
    outcome: Outcome,
    delivered: Cell<bool>,
}

/// Blocks the client of the running command. `None` where the server cannot block it, with nothing replied.
pub fn block(ctx: Ctx<'_>) -> Option<usize> {
    // SAFETY: a command's context; the callbacks below keep the contracts of their kinds.
    let handle = api!(RedisModule_BlockClient(ctx.raw(), Some(reply), Some(unblocked), Some(free), 0))?;
    if handle.is_null() {
        return None;
    }
    // SAFETY: a live handle.
    let _ = api!(RedisModule_SetDisconnectCallback(handle, Some(disconnected)));
    Some(handle.expose_provenance())
}

fn handle_of(number: usize) -> *mut RedisModuleBlockedClient {
    ptr::with_exposed_provenance_mut(number)
}

/// Ends a client's wait. `handle` has left the queue, so this is the only time for it.
pub fn unblock(handle: usize, outcome: Outcome) {
    let parcel = Box::into_raw(Box::new(Parcel { outcome, delivered: Cell::new(false) }));
    // SAFETY: a handle from `block`, given back once; the parcel is the server's until `free`.
    let status = api!(RedisModule_UnblockClient(handle_of(handle), parcel.cast::<c_void>()));
    if status != Some(OK) {
        // SAFETY: the server did not take it.
        drop(unsafe { Box::from_raw(parcel) });
    }
}

unsafe extern "C" fn reply(ctx: *mut RedisModuleCtx, _argv: *mut *mut RedisModuleString, _argc: c_int) -> c_int {
    // SAFETY: the context of this call; the parcel lives until `free`.
    let parcel = api!(RedisModule_GetBlockedClientPrivateData(ctx)).unwrap_or(ptr::null_mut()).cast::<Parcel>();
    let ctx = unsafe { Ctx::new(ctx) };
    let Some(parcel) = (unsafe { parcel.as_ref() }) else {
        ctx.reply_null();
        return OK;
    };
    parcel.delivered.set(true);
    match &parcel.outcome {
        Outcome::Granted { lock, token, .. } => crate::commands::claim::reply_granted(ctx, token, lock.fence()),
        Outcome::TimedOut => ctx.reply_null(),
        Outcome::Failed(text) => ctx.reply_error(text),
    }
    OK
}

/// The last call for a parcel. A grant that found its client gone is taken back.
unsafe extern "C" fn free(_ctx: *mut RedisModuleCtx, parcel: *mut c_void) {
    // SAFETY: made by `unblock`, freed once.
    let parcel = unsafe { Box::from_raw(parcel.cast::<Parcel>()) };
    if parcel.delivered.get() {
        return;
    }
    if let Outcome::Granted { db, lock, .. } = parcel.outcome {
        state(|state| state.jobs.push(Job::TakeBack { db, lock }));
        timer::arm(0);
    }
}

/// Takes the client out of its queue, if it is still there, and gives its handle back.
fn leaves(handle: *mut RedisModuleBlockedClient) -> bool {
    let left = state(|state| {
        let id = state.waiting.by_handle(handle.addr())?;
        state.stats.waits_abandoned = state.stats.waits_abandoned.saturating_add(1);
        state.waiting.leave(id)
    });
    if left.is_none() {
        return false;
    }
    // SAFETY: it was in a queue, so this is the only time for it.
    let _ = api!(RedisModule_UnblockClient(handle, ptr::null_mut()));
    true
}

/// The client closed, was killed, was unblocked with an error, or this server became a replica.
unsafe extern "C" fn disconnected(_ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) {
    leaves(handle);
}

/// CLIENT UNBLOCK without ERROR.
unsafe extern "C" fn unblocked(ctx: *mut RedisModuleCtx, _argv: *mut *mut RedisModuleString, _argc: c_int) -> c_int {
    // SAFETY: the context of this call.
    let handle = api!(RedisModule_GetBlockedClientHandle(ctx)).unwrap_or(ptr::null_mut());
    unsafe { Ctx::new(ctx) }.reply_null();
    leaves(handle);
    OK
}
