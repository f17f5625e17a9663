//! A lock loses its owner: the key goes, or goes on to whoever waits.

use std::ffi::CStr;

use super::wake;
use crate::locks::codec::Change;
use crate::server::clock;
use crate::server::ctx::Ctx;
use crate::server::key::Key;
use crate::server::main_thread::state;

/// Why a lock is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Release,
    Revoke,
    Linger,
    /// Its owner never heard of the grant.
    TakeBack,
}

impl Cause {
    fn event(self) -> &'static CStr {
        match self {
            Self::Release | Self::TakeBack => c"prlock.release",
            Self::Revoke => c"prlock.revoke",
            Self::Linger => c"prlock.linger",
        }
    }
}

/// Frees the lock under `key`; the caller has checked that it may. The next waiter gets it in the same step, so that nobody
/// comes between.
pub fn lock(ctx: Ctx<'_>, key: Key<'_>, cause: Cause) {
    let name = key.name();
    if wake::is_awaited(ctx, name) {
        let Some(lock) = key.lock().map(|seen| seen.clone()) else { return };
        // Closed meanwhile: whoever listens may change the key, and has then done what is left to do.
        drop(key);
        ctx.notify(cause.event(), name);
        let key = Key::look(ctx, name);
        if !key.lock().is_some_and(|found| found.is(&lock)) || wake::hand_on(ctx, key) {
            return;
        }
        // Everybody who waited is gone by now.
        remove(ctx, Key::look(ctx, name));
    } else {
        remove(ctx, key);
        ctx.notify(cause.event(), name);
    }
    ctx.notify_generic(c"del", name);
}

/// Deletes the key, and tells everyone but the subscribers.
fn remove(ctx: Ctx<'_>, mut key: Key<'_>) {
    let db = ctx.db();
    if let Some(lock) = key.lock() {
        state(|state| {
            state.registry.remove(db, &lock);
            if lock.linger_ms().is_some() {
                state.bindings.release(&lock);
            }
        });
    }
    key.delete();
    let name = key.name();
    drop(key);
    ctx.replicate_delete(name);
    ctx.signal_modified(name);
}

/// Does for a plain string what the usual compare-and-delete script does; the caller has compared. A waiter gets its
/// turn at once.
pub fn string(ctx: Ctx<'_>, mut key: Key<'_>) {
    let name = key.name();
    key.delete();
    drop(key);
    ctx.replicate_delete(name);
    ctx.signal_modified(name);
    ctx.notify_generic(c"del", name);
    if wake::is_awaited(ctx, name) {
        wake::serve(ctx, ctx.db(), name.bytes());
    }
}

/// Cuts a lock's deadline to at most `cut_at_ms`, Unix time in ms, since its holder's connection is closed.
pub fn linger(ctx: Ctx<'_>, mut key: Key<'_>, cut_at_ms: i64) {
    if key.expires_at_ms().is_some_and(|at_ms| at_ms <= cut_at_ms) {
        return;
    }
    state(|state| state.stats.lingered = state.stats.lingered.saturating_add(1));
    if cut_at_ms <= clock::wall().ms() {
        lock(ctx, key, Cause::Linger);
        return;
    }
    key.set_expires_at_ms(Some(cut_at_ms));
    let (db, name) = (ctx.db(), key.name().bytes());
    state(|state| state.waiting.set_wake(db, name, Some(cut_at_ms.saturating_add(1))));
    wake::arm();
    super::announce(ctx, key, Change::Linger, Some(cut_at_ms));
}
