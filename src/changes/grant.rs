//! A lock gets an owner.

use crate::commands::claim::make_token;
use crate::commands::error::CommandError;
use crate::locks::Bytes;
use crate::locks::codec::Change;
use crate::locks::lock::{Grant, Lock};
use crate::locks::queue::Terms;
use crate::locks::registry::Registry;
use crate::server::clock::Now;
use crate::server::ctx::Ctx;
use crate::server::key::{Key, Kind};
use crate::server::main_thread::state;

/// Why a lock is granted anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The key was free.
    Free,
    /// STEAL or STEALIF, from whoever held it.
    Steal,
    /// A client that waited is next; the key is free or handed on.
    Wait,
}

/// Grants the key on these terms with a new fence, in place of whatever lies there.
pub fn new(ctx: Ctx<'_>, key: Key<'_>, terms: Terms<'_>, now: Now, cause: Cause) -> Result<Lock, CommandError> {
    let (fence, shared) = state(|state| (state.fences.next(now.us), state.holders.share(terms.holder)));
    let fence = fence.ok_or(CommandError::NoFence)?;
    let made;
    let token = match terms.token {
        Some(token) => token,
        None => {
            made = make_token();
            made.as_bytes()
        }
    };
    let grant = Grant {
        token,
        holder: terms.holder,
        fence,
        claimed_at_ms: now.ms(),
        renewed_at_ms: now.ms(),
        renewals: 0,
        linger_ms: terms.linger_ms,
    };
    let lock = Lock::with_holder(key.name().bytes(), &grant, shared);
    let change = if cause == Cause::Steal { Change::Steal } else { Change::Claim };
    store(ctx, key, &lock, now.ms().saturating_add(terms.ttl_ms), change, terms.connection_id)?;
    state(|state| {
        let stats = &mut state.stats;
        stats.claims_granted = stats.claims_granted.saturating_add(1);
        match cause {
            Cause::Free => {}
            Cause::Steal => stats.steals = stats.steals.saturating_add(1),
            Cause::Wait => stats.claims_after_wait = stats.claims_after_wait.saturating_add(1),
        }
    });
    Ok(lock)
}

/// Grants the lock once more to the token that holds it: the same fence, but TTL, holder and linger as asked for now.
pub fn again(ctx: Ctx<'_>, key: Key<'_>, terms: Terms<'_>, now: Now) -> Result<Lock, CommandError> {
    let lock = {
        let held = key.lock().ok_or(CommandError::Refused)?;
        let mut token = Bytes::new();
        held.token_into(&mut token);
        let grant =
            Grant { holder: terms.holder, renewed_at_ms: now.ms(), linger_ms: terms.linger_ms, ..held.grant(&token) };
        Lock::with_holder(key.name().bytes(), &grant, state(|state| state.holders.share(terms.holder)))
    };
    store(ctx, key, &lock, now.ms().saturating_add(terms.ttl_ms), Change::Claim, terms.connection_id)?;
    state(|state| state.stats.claims_repeated = state.stats.claims_repeated.saturating_add(1));
    Ok(lock)
}

fn store(
    ctx: Ctx<'_>,
    mut key: Key<'_>,
    lock: &Lock,
    expires_at_ms: i64,
    change: Change,
    connection_id: Option<u64>,
) -> Result<(), CommandError> {
    // Such a server does not look before it adds.
    if ctx.keeps_lapsed() && matches!(key.kind(), Kind::Free) && !ctx.delete_lapsed(key.name()) {
        return Err(CommandError::Refused);
    }
    let old = key.lock().map(|seen| seen.clone());
    if !key.put(lock) {
        return Err(CommandError::Refused);
    }
    key.set_expires_at_ms(Some(expires_at_ms));
    let (db, name) = (ctx.db(), key.name());
    state(|state| {
        if let Some(old) = &old {
            state.registry.remove(db, old);
            if old.linger_ms().is_some() {
                state.bindings.release(old);
            }
        }
        debug_assert!(!Registry::is_registered(lock));
        state.registry.add(db, lock);
    });
    if super::wake::is_awaited(ctx, name) {
        let name = name.bytes();
        state(|state| state.waiting.set_wake(db, name, Some(expires_at_ms.saturating_add(1))));
    }
    if lock.linger_ms().is_some() {
        super::bind(ctx, connection_id, lock);
    }
    super::wake::arm();
    super::announce(ctx, key, change, Some(expires_at_ms));
    Ok(())
}
