//! A lock's state as the primary or a file says it.

use super::event;
use crate::commands::error::CommandError;
use crate::locks::codec::Decoded;
use crate::locks::lock::Lock;
use crate::server::ctx::Ctx;
use crate::server::key::Key;
use crate::server::main_thread::state;

/// Puts the lock there, whatever was there before.
pub fn lock(ctx: Ctx<'_>, mut key: Key<'_>, decoded: &Decoded<'_>) -> Result<(), CommandError> {
    let shared = state(|state| state.holders.share(decoded.grant.holder));
    let lock = Lock::with_holder(key.name().bytes(), &decoded.grant, shared);
    let old = key.lock().map(|seen| seen.clone());
    if !key.put(&lock) {
        return Err(CommandError::Refused);
    }
    key.set_expires_at_ms(decoded.expires_at_ms);
    let name = key.name();
    drop(key);
    let db = ctx.db();
    state(|state| {
        if let Some(old) = &old {
            state.registry.remove(db, old);
        }
        state.fences.seen(lock.fence());
        state.registry.add(db, &lock);
    });
    // For this server's own AOF; its replicas get the primary's stream as it is.
    ctx.replicate_verbatim();
    ctx.signal_modified(name);
    if let Some(event) = event(decoded.change) {
        ctx.notify(event, name);
    }
    Ok(())
}

/// Deletes whatever lies there.
pub fn gone(ctx: Ctx<'_>, mut key: Key<'_>) {
    let old = key.lock().map(|seen| seen.clone());
    key.delete();
    let name = key.name();
    drop(key);
    let db = ctx.db();
    if let Some(old) = &old {
        state(|state| state.registry.remove(db, old));
    }
    ctx.replicate_verbatim();
    ctx.signal_modified(name);
    ctx.notify_generic(c"del", name);
}

/// Sets the deadline of whatever lies there.
pub fn deadline(ctx: Ctx<'_>, mut key: Key<'_>, at_ms: i64) {
    key.set_expires_at_ms(Some(at_ms));
    let name = key.name();
    drop(key);
    ctx.replicate_verbatim();
    ctx.signal_modified(name);
    ctx.notify_generic(c"expire", name);
}
