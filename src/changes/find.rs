//! Locks whose name the module was not told: after RENAME, MOVE and RESTORE.
//!
//! A lock that was unlinked but not freed lives on under another name. The first command on that name, or the first list,
//! finds it.

use crate::locks::lock::Lock;
use crate::locks::registry::Registry;
use crate::server::acl::User;
use crate::server::ctx::Ctx;
use crate::server::imports;
use crate::server::key::Key;
use crate::server::main_thread::state;
use crate::server::scan;
use crate::server::string::{OwnedStr, Str};
use crate::server::timer;

/// Opens a key for a command that may change it, and makes sure that the lock which lies there, if one does, is registered
/// there.
#[inline]
pub fn open<'k>(ctx: Ctx<'k>, name: Str<'k>) -> Key<'k> {
    let mut key = ctx.open(name);
    adopt(ctx, &mut key);
    key
}

/// The same for a command that only reads, which does not count as use.
pub fn read<'k>(ctx: Ctx<'k>, name: Str<'k>) -> Key<'k> {
    let mut key = Key::read(ctx, name);
    adopt(ctx, &mut key);
    key
}

/// Makes sure that the lock under `key`, if there is one, is registered there.
#[inline]
pub fn adopt(ctx: Ctx<'_>, key: &mut Key<'_>) {
    if let Some(found) = key.lock()
        && !Registry::is_registered(&found)
    {
        let found = found.clone();
        adopt_lost(ctx, key, &found);
    }
}

#[inline(never)]
fn adopt_lost(ctx: Ctx<'_>, key: &mut Key<'_>, found: &Lock) {
    let db = ctx.db();
    // Another one in memory, so that what was noted of this one is over.
    let lock = found.renamed(key.name().bytes());
    if !key.put(&lock) {
        return;
    }
    let was_unlinked = !Registry::is_unseen(found);
    let counts = was_unlinked && ctx.flags().is_primary();
    state(|state| {
        state.registry.add(db, &lock);
        state.moved(db, found, &lock);
        if counts {
            // It had been taken for a deletion.
            state.stats.deleted = state.stats.deleted.saturating_sub(1);
        }
    });
}

/// Finds all locks that live under a name that is not known. Costs nothing when there is none; else a look at the names
/// that are likely (RESTORE: the same, MOVE: the same in another database), and only then a walk over the keyspace.
pub fn settle() {
    let (lost, located) = state(|state| (state.registry.at_large(), state.registry.located()));
    if lost.is_empty() {
        return;
    }
    // Not the caller's: on Valkey 9 the context of a command in a transaction names the transaction's database, whichever
    // was selected since.
    let ctx = timer::detached();
    let home = ctx.db();
    for (db, lock) in &lost {
        look(ctx, *db, lock.key());
    }
    for (db, name) in &located {
        look(ctx, *db, name);
    }
    // What is found is registered as another lock, and the one that was lost is gone.
    if !state(|state| state.registry.has_lost()) {
        ctx.select(home);
        return;
    }
    let is_primary = ctx.flags().is_primary();
    let mut db = 0;
    while ctx.select(db) {
        for (name, lock) in scan::unregistered(ctx) {
            look(ctx, db, &name);
            if !is_primary && Registry::is_at_large(&lock) {
                // Past its deadline, and not this server's to delete: the primary may give it another.
                state(|state| state.registry.locate(db, name, &lock));
            }
        }
        db = db.saturating_add(1);
    }
    ctx.select(home);
    // What is still lost is on its way to be freed by a background thread.
    state(|state| state.registry.forget_adrift());
}

/// Finds all locks of unknown names if this may be one of them.
pub fn settle_if_lost(lock: &Lock) {
    if Registry::is_at_large(lock) {
        settle();
    }
}

/// Registers the lock under this name, if there is one.
fn look(ctx: Ctx<'_>, db: i32, name: &[u8]) {
    if !ctx.select(db) {
        return;
    }
    let name = OwnedStr::new(name);
    read(ctx, name.as_str());
}

/// The deadline of a lock of the selected database, if it still lies under its name, is this node's and not past its
/// deadline, and `user` may read it. `Some(None)`: it has no deadline.
pub fn verify(ctx: Ctx<'_>, lock: &Lock, user: Option<&User>) -> Option<Option<i64>> {
    let name = OwnedStr::new(lock.key());
    if user.is_some_and(|user| !user.may_read(name.as_str())) {
        return None;
    }
    if imports::is_importing(name.as_str()) {
        return None;
    }
    let key = Key::read(ctx, name.as_str());
    let is_there = key.lock().is_some_and(|found| found.is(lock));
    is_there.then(|| key.expires_at_ms())
}
