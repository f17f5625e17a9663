//! A lock gets a new deadline from its holder.

use crate::locks::codec::Change;
use crate::server::ctx::Ctx;
use crate::server::key::Key;
use crate::server::main_thread::state;
use crate::server::string::Str;

/// Renews the lock under `key`; the caller has checked the token.
pub fn lock(ctx: Ctx<'_>, mut key: Key<'_>, now_ms: i64, ttl_ms: i64) {
    let expires_at_ms = now_ms.saturating_add(ttl_ms);
    key.set_expires_at_ms(Some(expires_at_ms));
    note(ctx, &mut key, now_ms);
    if let Some(lock) = key.lock()
        && lock.linger_ms().is_some()
    {
        super::bind(ctx, ctx.connection_id(), &lock);
    }
    set_wake(ctx, key.name(), expires_at_ms);
    super::announce(ctx, key, Change::Renew, Some(expires_at_ms));
}

/// Notes the renewal in the lock; in another one in its place, where that one has come to the end of what it can note.
fn note(ctx: Ctx<'_>, key: &mut Key<'_>, now_ms: i64) {
    let Some((old, new)) =
        key.lock().filter(|lock| !lock.renew(now_ms)).map(|lock| (lock.clone(), lock.renewed(now_ms)))
    else {
        return;
    };
    if key.put(&new) {
        let db = ctx.db();
        state(|state| {
            state.registry.remove(db, &old);
            state.registry.add(db, &new);
            state.moved(db, &old, &new);
        });
    }
}

/// Does for a plain string what the usual compare-and-pexpire script does; the caller has compared.
pub fn string(ctx: Ctx<'_>, mut key: Key<'_>, now_ms: i64, ttl_ms: i64) {
    let expires_at_ms = now_ms.saturating_add(ttl_ms);
    key.set_expires_at_ms(Some(expires_at_ms));
    let name = key.name();
    drop(key);
    set_wake(ctx, name, expires_at_ms);
    ctx.replicate_deadline(name, expires_at_ms);
    ctx.signal_modified(name);
    ctx.notify_generic(c"expire", name);
}

fn set_wake(ctx: Ctx<'_>, key: Str<'_>, expires_at_ms: i64) {
    if !super::wake::is_anyone_waiting() {
        return;
    }
    let (db, key) = (ctx.db(), key.bytes());
    state(|state| state.waiting.set_wake(db, key, Some(expires_at_ms.saturating_add(1))));
    super::wake::arm();
}
