//! Whether anybody can need the stream of changes: a replica, the append-only file, or one of them to come.
//!
//! Building the stream's commands is most of what a change costs the server, and a server without replicas and AOF throws
//! them away. So while nobody can need it, a change is only counted (for the save points), as the server does with its own
//! commands. It is safe, since every new copy of the data starts from a snapshot:
//! - a replica attaches by a full synchronisation, and an AOF is switched on by a rewrite; both fork a child, which has
//!   every change so far, and the server tells of the fork before any later command runs;
//! - a partial synchronisation needs a backlog, which only a server has that had a replica, was one, or loaded an RDB with
//!   a replication history; it tells of all three;
//! - in Cluster mode changes are always written: slot migration has streams of its own.
//!
//! From the first such sign on, changes are written, and it takes a look at the server, from its cron, to find that the
//! last reason is gone.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redis_module::raw::RedisModuleCtx;

use super::clock;
use super::ctx::Ctx;

/// How often the cron looks whether the stream is still needed, in ms.
const LOOK_MS: i64 = 1_000;

/// Somebody may need the stream.
static NEEDED: AtomicBool = AtomicBool::new(true);
/// When the cron looks again, monotonic ms.
static LOOK_AT_MS: AtomicI64 = AtomicI64::new(0);

/// Whether changes must be written into the stream.
#[inline]
pub(super) fn is_needed() -> bool {
    NEEDED.load(Relaxed)
}

/// From now on changes must be written.
pub(super) fn set_needed() {
    NEEDED.store(true, Relaxed);
}

/// A child was forked: for a replica or an AOF, or only to save.
pub(super) fn forked(ctx: *mut RedisModuleCtx) {
    if !is_needed() && is_needed_by(ctx, true) {
        set_needed();
    }
}

/// Looks at the server: at load, and then about once a second.
pub(super) fn look(ctx: *mut RedisModuleCtx) {
    let now_ms = clock::monotonic_ms();
    if now_ms >= LOOK_AT_MS.load(Relaxed) {
        LOOK_AT_MS.store(now_ms.saturating_add(LOOK_MS), Relaxed);
        NEEDED.store(is_needed_by(ctx, false), Relaxed);
    }
}

/// Whether the server is anything but a primary without AOF, replicas, backlog and loading. A child whose purpose is not
/// known may write for a replica or an AOF, unless it was forked just now (`is_new`): then its purpose shows in the rest.
fn is_needed_by(ctx: *mut RedisModuleCtx, is_new: bool) -> bool {
    // SAFETY: the live context of a callback.
    let flags = unsafe { Ctx::new(ctx) }.flags();
    !flags.is_primary()
        || flags.is_cluster()
        || flags.is_loading()
        || flags.has_aof()
        || (flags.has_child() && !is_new)
        || number(ctx, c"repl_backlog_active") != Some(0)
        || number(ctx, c"connected_slaves") != Some(0)
}

/// A number in the server's INFO on replication.
fn number(ctx: *mut RedisModuleCtx, field: &CStr) -> Option<u64> {
    // SAFETY: a live context; the data is ours to free.
    let data = api!(RedisModule_GetServerInfo(ctx, c"replication".as_ptr())).filter(|data| !data.is_null())?;
    let mut error = super::ERR;
    // SAFETY: live data; `error` outlives the call.
    let value = api!(RedisModule_ServerInfoGetFieldUnsigned(data, field.as_ptr(), &raw mut error));
    // SAFETY: ours, freed once.
    let _ = api!(RedisModule_FreeServerInfo(ctx, data));
    value.filter(|_| error == super::OK)
}
