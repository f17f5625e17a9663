//! A lock gets a new deadline from its holder.

use crate::locks::codec::Change;
use crate::locks::lock::Lock;
use crate::server::ctx::Ctx;
use crate::server::key::Key;
use crate::server::main_thread::state;

/// Renews a lock; the caller has checked the token.
pub fn lock(ctx: Ctx<'_>, mut key: Key<'_>, lock: &Lock, now_ms: i64, expires_at_ms: i64) {
    lock.renew(now_ms);
    key.set_expires_at_ms(Some(expires_at_ms));
    let name = key.name();
    drop(key);
    if lock.linger_ms().is_some() {
        super::bind(ctx, ctx.connection_id(), lock);
    }
    set_wake(ctx, name.bytes(), expires_at_ms);
    super::announce(ctx, name, lock, Change::Renew, Some(expires_at_ms));
}

/// Does for a plain string what the usual compare-and-pexpire script does; the caller has compared.
pub fn string(ctx: Ctx<'_>, mut key: Key<'_>, expires_at_ms: i64) {
    key.set_expires_at_ms(Some(expires_at_ms));
    let name = key.name();
    drop(key);
    set_wake(ctx, name.bytes(), expires_at_ms);
    ctx.replicate_deadline(name, expires_at_ms);
    ctx.signal_modified(name);
    ctx.notify_generic(c"expire", name);
}

fn set_wake(ctx: Ctx<'_>, key: &[u8], expires_at_ms: i64) {
    if state(|state| state.waiting.total()) == 0 {
        return;
    }
    let db = ctx.db();
    state(|state| state.waiting.set_wake(db, key, Some(expires_at_ms.saturating_add(1))));
    super::wake::arm();
}
