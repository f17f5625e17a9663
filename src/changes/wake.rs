//! Waiting, and the end of it: every grant to a client that waited is made here.

use std::ffi::CStr;
use std::rc::Rc;

use super::grant::{self, Cause};
use crate::commands::{self, claim, error::CommandError};
use crate::locks::Bytes;
use crate::locks::lock::Lock;
use crate::locks::outcome::{Granted, Outcome};
use crate::locks::queue::{WaiterId, Wish};
use crate::server::acl;
use crate::server::blocking;
use crate::server::clock;
use crate::server::ctx::Ctx;
use crate::server::key::{Key, Kind};
use crate::server::main_thread::state;
use crate::server::string::{OwnedStr, Str};
use crate::server::timer;

/// The wait ended because this server became a replica. The words are the server's own for its blocking commands.
pub const DEMOTED: &CStr =
    c"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
/// The wait ended because this node does not serve the key (any more). Cluster clients try such a command again, and are
/// then told where the key is.
const MOVED_AWAY: &CStr = c"TRYAGAIN the key's slot is being moved to, or is served by, another node";
/// The wait ended because the client's user has lost the right to the command or the key.
const NO_RIGHT: &CStr = c"NOPERM this user may not claim this key any more";
const WRONG_TYPE: &CStr = c"WRONGTYPE Operation against a key holding the wrong kind of value";

/// Longest sleep, in ms, while somebody waits: keys can change without a sign (see `tick::patrol`), and the wall clock can
/// be set.
const PATROL_MS: i64 = 25;

/// Whether anybody waits for anything.
#[inline]
pub fn is_anyone_waiting() -> bool {
    state(|state| !state.waiting.is_empty())
}

/// Whether somebody waits for `key` of the selected database.
#[inline]
pub fn is_awaited(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    is_anyone_waiting() && has_queue(ctx, key)
}

#[inline(never)]
fn has_queue(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    let (db, key) = (ctx.db(), key.bytes());
    state(|state| state.waiting.has(db, key))
}

/// Puts the client of the running command into the queue of the key that is held by what is in `held`.
pub fn wait(ctx: Ctx<'_>, held: Key<'_>, wish: Wish, block_ms: i64) -> Result<(), CommandError> {
    let (key, lapses_at_ms, is_string) =
        (held.name().bytes(), held.expires_at_ms(), matches!(held.kind(), Kind::String));
    drop(held);
    let Some(handle) = blocking::block(ctx) else { return Err(CommandError::CannotWait) };
    let db = ctx.db();
    // The clock's ms are cut off, not rounded: one more, so that no wait ends early.
    let until_ms = (block_ms > 0).then(|| clock::monotonic_ms().saturating_add(block_ms).saturating_add(1));
    state(|state| {
        state.waiting.join(db, key, wish, handle, until_ms);
        if is_string {
            // A lock tells of most changes.
            state.waiting.suspect(db, key);
        }
        state.waiting.set_wake(db, key, lapses_at_ms.map(|at_ms| at_ms.saturating_add(1)));
        state.stats.waits_started = state.stats.waits_started.saturating_add(1);
    });
    arm();
    Ok(())
}

/// Arms the timer for whatever is due next, if anybody waits.
pub fn arm() {
    let due_ms = state(|state| {
        if state.waiting.is_empty() {
            return None;
        }
        Some(state.waiting.due_in_ms(clock::monotonic_ms(), clock::wall().ms()).unwrap_or(PATROL_MS).min(PATROL_MS))
    });
    if let Some(due_ms) = due_ms {
        timer::arm(due_ms);
    }
}

/// Gives the lock under `key` to the first who waits for it, in place of its owner. False if nobody waits.
pub fn hand_on(ctx: Ctx<'_>, key: Key<'_>) -> bool {
    let (db, name) = (ctx.db(), key.name());
    let Some((id, wish)) = heir(db, name) else { return false };
    match grant::new(ctx, key, wish.terms(), clock::wall(), Cause::Wait) {
        Ok(lock) => {
            let granted = Granted::new(db, &lock);
            deliver(id, &granted);
            serve_twins(ctx, db, name.bytes(), &granted);
            true
        }
        Err(_) => false,
    }
}

/// Looks at a key that somebody waits for, and does what its state demands: grants it, fails the wait, or goes on waiting.
/// The caller may write.
pub fn serve(ctx: Ctx<'_>, db: i32, key: &[u8]) {
    attend(ctx, db, key, true);
}

/// The same, but grants nothing: a key with something to grant is only marked.
pub fn look(ctx: Ctx<'_>, db: i32, key: &[u8]) {
    attend(ctx, db, key, false);
}

fn attend(ctx: Ctx<'_>, db: i32, key: &[u8], grants: bool) {
    let home = ctx.db();
    if home != db && !ctx.select(db) {
        return;
    }
    let name = OwnedStr::new(key);
    attend_selected(ctx, db, key, &name, grants);
    if home != db {
        ctx.select(home);
    }
}

fn attend_selected(ctx: Ctx<'_>, db: i32, key: &[u8], name: &OwnedStr, grants: bool) {
    if !state(|state| state.waiting.has(db, key)) {
        return;
    }
    if !ctx.serves(name.as_str()) {
        fail(db, key, MOVED_AWAY);
        return;
    }
    let mut open = Key::look(ctx, name.as_str());
    super::find::adopt(ctx, &mut open);
    match open.kind() {
        Kind::Free if !grants => mark(db, key),
        Kind::Free => {
            let Some((id, wish)) = heir(db, name.as_str()) else { return };
            if let Ok(lock) = grant::new(ctx, open, wish.terms(), clock::wall(), Cause::Wait) {
                let granted = Granted::new(db, &lock);
                deliver(id, &granted);
                serve_twins(ctx, db, key, &granted);
            }
        }
        Kind::Lock(lock) => {
            let lapses_at_ms = open.expires_at_ms();
            let granted = Granted::new(db, &lock);
            drop(open);
            // Whoever got it before knows of it.
            granted.tell();
            // First, since a twin's grant has a deadline of its own.
            wake_at(db, key, lapses_at_ms);
            if grants {
                serve_twins(ctx, db, key, &granted);
            } else if twin(db, key, &granted.lock()).is_some() {
                mark(db, key);
            }
        }
        Kind::String => wake_at(db, key, open.expires_at_ms()),
        Kind::Other => fail(db, key, WRONG_TYPE),
    }
}

fn wake_at(db: i32, key: &[u8], lapses_at_ms: Option<i64>) {
    state(|state| state.waiting.set_wake(db, key, lapses_at_ms.map(|at_ms| at_ms.saturating_add(1))));
}

/// Who is to get the lock under `key`: the first who waits for it and still may claim it, as the server asks again before
/// it serves its own blocking commands (7.2 and later). The wait of those who may not ends here.
fn heir(db: i32, key: Str<'_>) -> Option<(WaiterId, Wish)> {
    loop {
        let (id, wish) =
            state(|state| state.waiting.head(db, key.bytes()).map(|(id, waiter)| (id, waiter.wish.clone())))?;
        if may_claim(&wish, key) {
            return Some((id, wish));
        }
        fail_all(&[id], NO_RIGHT);
    }
}

fn may_claim(wish: &Wish, key: Str<'_>) -> bool {
    wish.user.as_deref().is_none_or(|user| acl::may_run::<{ claim::WORDS_MIN }>(user, commands::CLAIM, key))
}

/// Answers everybody who waits with the token that holds the lock: it is a claim sent again, and must not be refused by
/// its own lock.
fn serve_twins(ctx: Ctx<'_>, db: i32, key: &[u8], granted: &Rc<Granted>) {
    let mut held = granted.lock();
    loop {
        let Some((id, wish)) = twin(db, key, &held) else { return };
        let name = OwnedStr::new(key);
        if !may_claim(&wish, name.as_str()) {
            fail_all(&[id], NO_RIGHT);
            continue;
        }
        let open = Key::look(ctx, name.as_str());
        if !open.lock().is_some_and(|found| found.is(&held)) {
            return;
        }
        match grant::again(ctx, open, wish.terms(), clock::wall()) {
            Ok(lock) => {
                granted.set_lock(&lock);
                deliver(id, granted);
                held = lock;
            }
            Err(_) => return,
        }
    }
}

/// A client that waits with the token of the lock that is held.
fn twin(db: i32, key: &[u8], held: &Lock) -> Option<(WaiterId, Wish)> {
    state(|state| {
        if state.waiting.is_empty() {
            return None;
        }
        let mut token = Bytes::new();
        held.token_into(&mut token);
        let id = state.waiting.twin(db, key, &token)?;
        Some((id, state.waiting.get(id)?.wish.clone()))
    })
}

fn mark(db: i32, key: &[u8]) {
    state(|state| state.waiting.mark(db, key));
}

/// Takes the client out of its queue and sends it the grant.
fn deliver(id: WaiterId, granted: &Rc<Granted>) {
    if let Some(waiter) = state(|state| state.waiting.leave(id)) {
        blocking::end(waiter.handle, Outcome::Granted(granted.clone()));
    }
}

/// Ends a client's wait because its time is up.
pub fn time_out(id: WaiterId) {
    let waiter = state(|state| {
        state.stats.waits_timed_out = state.stats.waits_timed_out.saturating_add(1);
        state.waiting.leave(id)
    });
    if let Some(waiter) = waiter {
        blocking::end(waiter.handle, Outcome::TimedOut);
    }
}

/// Ends the wait of everybody who waits for a key.
fn fail(db: i32, key: &[u8], text: &'static CStr) {
    fail_all(&state(|state| state.waiting.everybody_at(db, key)), text);
}

/// Ends every wait.
pub fn fail_everybody(text: &'static CStr) {
    fail_all(&state(|state| state.waiting.everybody()), text);
}

fn fail_all(ids: &[WaiterId], text: &'static CStr) {
    for id in ids {
        let waiter = state(|state| {
            state.stats.waits_abandoned = state.stats.waits_abandoned.saturating_add(1);
            state.waiting.leave(*id)
        });
        if let Some(waiter) = waiter {
            blocking::end(waiter.handle, Outcome::Failed(text));
        }
    }
}
