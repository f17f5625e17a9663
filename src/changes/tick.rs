//! What the module does by itself: the one place from which writes start that no command asked for.

use std::collections::VecDeque;

use super::{free, wake};
use crate::locks::lock::Lock;
use crate::locks::state::{Job, State, Unheard};
use crate::server::clock;
use crate::server::ctx::Ctx;
use crate::server::key::Key;
use crate::server::main_thread::state;
use crate::server::string::OwnedStr;
use crate::server::{events, passing, timer};

/// Steps of one kind in one tick of the timer; the rest comes in the next, so that commands get their turn.
const STEPS_MAX: usize = 1_000;
/// Behind a command nothing is left for later, so that no other comes between. It ends: each grant takes a waiter away.
const NO_MAX: usize = usize::MAX;
/// How soon to ask again whether writes are allowed, in ms.
const PAUSED_MS: i64 = 5;
/// How soon to look again whether this node serves the keys of what is due, in ms: it takes a failover, or somebody's help.
const UNSERVED_MS: i64 = 100;
/// Keys looked at per tick without a sign that they changed.
const PATROL_KEYS: usize = 64;
/// Bytes of their names, after which the rest comes in the next tick: a look reads the name more than once.
const PATROL_BYTES: usize = 256 * 1024;
/// After a look-round that took long, for names of many megabytes, none for so many times as long.
const PATROL_REST: i64 = 20;

/// Called by the timer.
pub fn tick(ctx: Ctx<'_>) {
    state(State::no_flush_runs);
    let may_write = ctx.may_write();
    if may_write {
        look_at_named(ctx, STEPS_MAX);
    } else if wake::is_anyone_waiting() && !ctx.flags().is_writable() {
        // They came while this replica took writes (`replica-read-only no`), and it will grant nothing any more.
        wake::fail_everybody(wake::DEMOTED);
    }
    let (is_due, is_idle) = state(|state| {
        state.waiting.mark_lapsed(clock::wall().ms(), STEPS_MAX);
        let is_due = state.waiting.has_dirty() || state.waiting.has_named() || !state.jobs.is_empty();
        (is_due, !is_due && state.waiting.is_empty() && state.ended.is_empty())
    });
    if is_idle {
        state(|state| state.patrol = None);
        events::watch_turns(false);
        passing::watch(false);
        return;
    }
    let does_due = may_write && (!is_due || ctx.takes_writes());
    let mut keeps_jobs = false;
    if does_due {
        keeps_jobs = do_jobs(ctx);
        serve_dirty(ctx, STEPS_MAX);
    }
    if may_write {
        patrol(ctx);
    }
    if is_due && !does_due {
        // Kept for later, except on a replica, where nobody waits any more and the primary keeps the locks.
        if ctx.flags().is_writable() {
            end_waits();
            timer::arm(PAUSED_MS);
            return;
        }
        state(|state| state.forget_jobs());
    }
    end_waits();
    wake::arm();
    let has_jobs = state(|state| {
        if state.jobs.is_empty() {
            // The memory of many goes with them.
            state.jobs = VecDeque::new();
        }
        !state.jobs.is_empty()
    });
    if has_jobs {
        timer::arm(if keeps_jobs { UNSERVED_MS } else { 0 });
    }
}

/// Called behind a command that has changed, or may have changed, keys that somebody waits for.
pub fn after_command(ctx: Ctx<'_>) {
    state(State::no_flush_runs);
    if !ctx.may_write() {
        return;
    }
    look_at_named(ctx, NO_MAX);
    if state(|state| state.waiting.has_dirty()) && ctx.takes_writes() {
        serve_dirty(ctx, NO_MAX);
    }
}

/// Returns whether there are some that can't be done now.
fn do_jobs(ctx: Ctx<'_>) -> bool {
    let mut kept = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(job) = state(|state| state.jobs.pop_front()) else { break };
        let is_done = match job {
            Job::TakeBack { fence } => take_back(ctx, fence),
            Job::Linger { number, closed_at_ms } => linger(ctx, number, closed_at_ms),
        };
        if !is_done {
            kept.push(job);
        }
    }
    let keeps = !kept.is_empty();
    state(|state| state.jobs.extend(kept));
    keeps
}

/// Frees a lock whose grant nobody has heard of. False if that must wait.
fn take_back(ctx: Ctx<'_>, fence: u64) -> bool {
    if let Some(lock) = state(|state| state.unheard.get(&fence).map(|unheard| unheard.lock.clone())) {
        super::find::settle_if_lost(&lock);
    }
    // Found under another name, it is noted under that.
    let Some(Unheard { db, lock, renewals }) = state(|state| state.unheard.remove(&fence)) else { return true };
    let is_done = with_key(ctx, db, &lock, |ctx, key| {
        // Claimed again meanwhile, it is another lock in memory; renewed, somebody knows of it.
        if key.lock().is_some_and(|found| found.is(&lock) && found.renewals() == renewals) {
            free::lock(ctx, key, free::Cause::TakeBack);
        }
    });
    if !is_done {
        state(|state| state.unheard.insert(fence, Unheard { db, lock, renewals }));
    }
    is_done
}

/// Sees to a lock whose connection is closed. False if that must wait.
fn linger(ctx: Ctx<'_>, number: u64, closed_at_ms: i64) -> bool {
    // Renewed or claimed by another connection meanwhile, it lives on with that one.
    let bound = || state(|state| state.bindings.closed(number));
    let Some((_, lock)) = bound() else { return true };
    super::find::settle_if_lost(&lock);
    // Found under another name, it is bound under that.
    let Some((db, lock)) = bound() else { return true };
    let is_done = with_key(ctx, db, &lock, |ctx, key| {
        // One that was restored in its place is bound to nobody until it is renewed.
        let linger_ms = key.lock().filter(|found| found.is(&lock)).and_then(|found| found.linger_ms());
        if let Some(linger_ms) = linger_ms {
            free::linger(ctx, key, closed_at_ms.saturating_add(linger_ms));
        }
    });
    if is_done && let Some((_, lock)) = bound() {
        state(|state| state.bindings.release(&lock));
    }
    is_done
}

/// Runs `f` on the key of a lock of this database, if this server serves it. False if it does not, and the lock still lies
/// here: the cluster is down, or the slot is on its way here.
fn with_key<'c>(ctx: Ctx<'c>, db: i32, lock: &Lock, f: impl FnOnce(Ctx<'c>, Key<'_>)) -> bool {
    if !ctx.select(db) {
        return true;
    }
    let name = OwnedStr::new(lock.key());
    let is_served = ctx.serves(name.as_str());
    let key = Key::look(ctx, name.as_str());
    if is_served {
        f(ctx, key);
        return true;
    }
    !key.lock().is_some_and(|found| found.is(lock))
}

fn serve_dirty(ctx: Ctx<'_>, max: usize) {
    for _ in 0..max {
        match state(|state| state.waiting.take_dirty()) {
            None => return,
            Some((db, key)) => wake::serve(ctx, db, &key),
        }
    }
}

/// Looks at the keys that commands have named. What there is to grant, it only marks.
fn look_at_named(ctx: Ctx<'_>, max: usize) {
    for _ in 0..max {
        match state(|state| state.waiting.take_named()) {
            None => return,
            Some((db, key)) => wake::look(ctx, db, &key),
        }
    }
}

/// Looks at some keys that nothing was heard of: another module may have changed them through the API, and a transaction
/// may have named more of them than are remembered.
fn patrol(ctx: Ctx<'_>) {
    let start_ms = clock::monotonic_ms();
    let places = state(|state| {
        if state.waiting.is_empty() || start_ms < state.patrol_from_ms {
            return Vec::new();
        }
        let places = state.waiting.around(state.patrol.as_ref(), PATROL_KEYS, PATROL_BYTES);
        state.patrol = places.last().cloned();
        places
    });
    if places.is_empty() {
        return;
    }
    for (db, key) in places {
        // What it finds to grant is left to the next tick, which asks whether it may.
        wake::look(ctx, db, &key);
    }
    let end_ms = clock::monotonic_ms();
    let rest_ms = end_ms.saturating_sub(start_ms).saturating_mul(PATROL_REST);
    state(|state| state.patrol_from_ms = end_ms.saturating_add(rest_ms));
}

fn end_waits() {
    for _ in 0..STEPS_MAX {
        match state(|state| state.waiting.ended(clock::monotonic_ms())) {
            None => return,
            Some(id) => wake::time_out(id),
        }
    }
}
