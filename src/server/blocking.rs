//! Clients that wait.
//!
//! The server's own wait deadlines are not used: on 7.0 and 7.2 a client that is served in the very moment of its deadline
//! would get no reply. The module's timer ends waits. CLIENT UNBLOCK has the same fault there once a handle was given
//! back, so handles are given back as late as can be: just before the server writes the replies of a turn. Until then the
//! end of a wait is the module's alone, and whatever else happens to the client finds it here. Each handle is given back
//! exactly once.

use std::ffi::{c_int, c_void};
use std::ptr;

use redis_module::raw::{RedisModuleBlockedClient, RedisModuleCtx, RedisModuleString};

use super::ctx::Ctx;
use super::main_thread::state;
use super::{OK, events, passing, timer};
use crate::locks::Bytes;
use crate::locks::outcome::Outcome;
use crate::locks::state::{Job, Unheard};

/// The server's handle of a client that it has blocked. [`block`] alone makes one, and [`end`] takes it, so that each is given
/// back once.
#[derive(Debug)]
pub struct Handle(*mut RedisModuleBlockedClient);

impl Handle {
    /// Tells it from others.
    pub fn addr(&self) -> usize {
        self.0.addr()
    }

    /// One that no server has given.
    #[cfg(test)]
    pub fn numbered(number: usize) -> Self {
        Self(ptr::without_provenance_mut(number))
    }
}

/// Blocks the client of the running command. `None` where the server cannot block it, with nothing replied.
pub fn block(ctx: Ctx<'_>) -> Option<Handle> {
    if !events::watch_turns(true) {
        return None;
    }
    // SAFETY: a command's context; the callbacks below keep the contracts of their kinds.
    let handle = api!(RedisModule_BlockClient(ctx.raw(), Some(reply), Some(unblocked), Some(free), 0))?;
    if handle.is_null() {
        // Its tick ends the watch, if nobody else waits.
        timer::arm(0);
        return None;
    }
    passing::watch(true);
    // SAFETY: a live handle.
    let _ = api!(RedisModule_SetDisconnectCallback(handle, Some(disconnected)));
    Some(Handle(handle))
}

/// Ends a client's wait. `handle` has left the queue.
pub fn end(handle: Handle, outcome: Outcome) {
    state(|state| state.ended.push(handle, outcome));
    events::want_turn();
}

/// Gives back the handles of all whose wait has ended. Called just before the server replies to them.
pub(super) fn tell() {
    let (ended, is_last) = state(|state| (state.ended.take_all(), state.waiting.is_empty()));
    for (handle, outcome) in ended {
        give_back(handle.0, Some(outcome));
    }
    if is_last {
        // Its tick finds nobody waiting and ends this watch.
        timer::arm(0);
    }
}

/// `outcome` goes to `reply`, if the client is still there, and to `free`.
fn give_back(handle: *mut RedisModuleBlockedClient, outcome: Option<Outcome>) {
    let parcel = outcome.map_or(ptr::null_mut(), |outcome| Box::into_raw(Box::new(outcome)));
    // SAFETY: a handle from `block`, given back once; the parcel is the server's until `free`.
    let status = api!(RedisModule_UnblockClient(handle, parcel.cast::<c_void>()));
    if status != Some(OK) && !parcel.is_null() {
        // SAFETY: the server did not take it.
        drop(unsafe { Box::from_raw(parcel) });
    }
}

fn tell_client(ctx: Ctx<'_>, outcome: &Outcome) {
    match outcome {
        Outcome::Granted(granted) => {
            granted.tell();
            let lock = granted.lock();
            let mut token = Bytes::new();
            lock.token_into(&mut token);
            crate::commands::claim::reply_granted(ctx, &token, lock.fence());
        }
        Outcome::TimedOut => ctx.reply_null(),
        Outcome::Failed(text) => ctx.reply_error(text),
    }
}

/// The client has not heard of the outcome and never will: a grant that nobody knows of is taken back.
fn forget(outcome: Outcome) {
    let Outcome::Granted(granted) = outcome else { return };
    if let Some((db, lock, renewals)) = granted.unheard() {
        state(|state| {
            let fence = lock.fence();
            state.unheard.insert(fence, Unheard { db, lock, renewals });
            state.jobs.push_back(Job::TakeBack { fence });
        });
        timer::arm(0);
    }
}

unsafe extern "C" fn reply(ctx: *mut RedisModuleCtx, _argv: *mut *mut RedisModuleString, _argc: c_int) -> c_int {
    // SAFETY: the context of this call; the parcel lives until `free`.
    let parcel = api!(RedisModule_GetBlockedClientPrivateData(ctx)).unwrap_or(ptr::null_mut()).cast::<Outcome>();
    let ctx = unsafe { Ctx::new(ctx) };
    match unsafe { parcel.as_ref() } {
        Some(outcome) => tell_client(ctx, outcome),
        None => ctx.reply_null(),
    }
    OK
}

/// The last call for a parcel.
unsafe extern "C" fn free(_ctx: *mut RedisModuleCtx, parcel: *mut c_void) {
    // SAFETY: made by `give_back`, freed once.
    forget(*unsafe { Box::from_raw(parcel.cast::<Outcome>()) });
}

/// Takes the client out of its queue, if it is still there.
fn leaves(handle: *mut RedisModuleBlockedClient) -> bool {
    state(|state| {
        let left = state.waiting.by_handle(handle.addr()).and_then(|id| state.waiting.leave(id)).is_some();
        if left {
            state.stats.waits_abandoned = state.stats.waits_abandoned.saturating_add(1);
        }
        left
    })
}

/// The client closed, was killed, was unblocked with an error, or this server became a replica.
unsafe extern "C" fn disconnected(_ctx: *mut RedisModuleCtx, handle: *mut RedisModuleBlockedClient) {
    if let Some(outcome) = state(|state| state.ended.take(handle.addr())) {
        forget(outcome);
    } else if !leaves(handle) {
        // Its handle was given back: `free` comes.
        return;
    }
    give_back(handle, None);
}

/// CLIENT UNBLOCK without ERROR. Whoever was granted the lock before is told of that.
unsafe extern "C" fn unblocked(ctx: *mut RedisModuleCtx, _argv: *mut *mut RedisModuleString, _argc: c_int) -> c_int {
    // SAFETY: the context of this call.
    let handle = api!(RedisModule_GetBlockedClientHandle(ctx)).unwrap_or(ptr::null_mut());
    let ctx = unsafe { Ctx::new(ctx) };
    if let Some(outcome) = state(|state| state.ended.take(handle.addr())) {
        tell_client(ctx, &outcome);
    } else {
        ctx.reply_null();
        if !leaves(handle) {
            return OK;
        }
    }
    give_back(handle, None);
    OK
}
