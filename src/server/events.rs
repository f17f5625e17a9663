//! What the server tells the module: flushes, swapped databases, loads, role changes, closed connections, expiries,
//! evictions, settings.
//!
//! Invariant: nothing here writes to the keyspace. What needs a write becomes a job for `changes::tick`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw::{
    self, RedisModuleClientInfo, RedisModuleCtx, RedisModuleEvent, RedisModuleEventCallback, RedisModuleFlushInfo,
    RedisModuleString, RedisModuleSwapDbInfo,
};

use super::ctx::Ctx;
use super::main_thread::state;
use super::string::Str;
use super::{OK, blocking, clock, config, imports, scan, soon, stream, timer};
use crate::changes;
use crate::locks::registry::Registry;
use crate::locks::state::{Job, State};

/// How late, in ms, the timer may be before the server's cron takes it for stuck (a wall clock that was set back).
const OVERDUE_MS: i64 = 30;

/// How long after a lock is unlinked, in ms, its expiry or eviction is announced: at once, unless the process is held up.
const EXPLAINED_WITHIN_MS: i64 = 100;

static WATCHES_TURNS: AtomicBool = AtomicBool::new(false);

static IS_REPLICA: AtomicBool = AtomicBool::new(false);

/// The server is about to sleep and has said so, or nobody asked it to say. Commands run here all the same: those of clients
/// whose wait or pause has just ended, on Redis 7.0.
static IS_LATE: AtomicBool = AtomicBool::new(true);

/// Subscribes to everything. Last of all at load, since on Redis 7.0 a module that fails after this leaves a callback
/// into memory that is gone. Ids above 17 mean different events on Redis and Valkey; see `imports.rs` for the one that is used.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) -> bool {
    let events: [(u64, RedisModuleEventCallback); 9] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, Some(flushed)),
        (raw::REDISMODULE_EVENT_SWAPDB, Some(swapped)),
        (raw::REDISMODULE_EVENT_LOADING, Some(loading)),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(role_changed)),
        (raw::REDISMODULE_EVENT_CLIENT_CHANGE, Some(client_changed)),
        (raw::REDISMODULE_EVENT_CRON_LOOP, Some(cron)),
        (raw::REDISMODULE_EVENT_CONFIG, Some(configured)),
        (raw::REDISMODULE_EVENT_FORK_CHILD, Some(forked)),
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, Some(replica_changed)),
    ];
    for (id, callback) in events {
        let event = RedisModuleEvent { id, dataver: 1 };
        // SAFETY: a live context in OnLoad; the callbacks are functions of this module, which is never unloaded.
        if api!(RedisModule_SubscribeToServerEvent(ctx, event, callback)) != Some(OK) {
            return false;
        }
    }
    // SAFETY: as above.
    set_replica(!unsafe { Ctx::new(ctx) }.flags().is_primary());
    imports::subscribe(ctx);
    // Not the generic class: it would cost every DEL and EXPIRE of the whole server a call. And on Valkey no class whose
    // event can come from another database than the running command's, as an expiry can (the target of MOVE): Valkey 8.1
    // leaves that command's client there (valkey #4024). See `lock_type::lapsed` for what takes its place.
    let expiries = if imports::is_valkey() { 0 } else { raw::REDISMODULE_NOTIFY_EXPIRED };
    let classes = expiries | raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: as above.
    api!(RedisModule_SubscribeToKeyspaceEvents(ctx, classes, Some(key_gone))) == Some(OK)
}

/// FLUSHDB, FLUSHALL, and the emptying before a full synchronisation: `unlink` is not called for these keys.
unsafe extern "C" fn flushed(ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, when: u64, data: *mut c_void) {
    // SAFETY: this event's data is of this type, and the context is the call's own.
    let Some(info) = (unsafe { data.cast::<RedisModuleFlushInfo>().as_ref() }) else { return };
    let db = info.dbnum;
    if when == raw::REDISMODULE_SUBEVENT_FLUSHDB_START {
        let ctx = unsafe { Ctx::new(ctx) };
        let counts = ctx.flags().is_primary();
        if db >= 0 && state(|state| state.registry.unlinked_at_large()) > 0 {
            doom_unregistered(ctx, db);
        }
        let cleared = state(|state| {
            if counts && db < 0 {
                state.flush_of_all_begins();
            }
            let cleared = state.registry.clear(db);
            if counts {
                state.stats.deleted = state.stats.deleted.saturating_add(cleared.count as u64);
            }
            state.bindings.clear(db);
            cleared
        });
        if cleared.is_large() {
            // If there can be no thread, this drops it here and now.
            let _ = std::thread::Builder::new().name("prlock-drop".to_owned()).spawn(move || drop(cleared));
        }
    } else if state(|state| state.waiting.mark_db(db)) || db < 0 {
        if is_replica() {
            // Not here and now: it may be the emptying before a full synchronisation. Valkey 8.1 says only behind it that it
            // loads, runs jobs in between, and ends at a key that is there before it is loaded.
            timer::arm(0);
        } else {
            soon::ask();
        }
    }
}

/// Before `db` is flushed: its locks of unknown names are as good as gone. It may be a background thread that frees them,
/// and until then they would count as alive.
fn doom_unregistered(ctx: Ctx<'_>, db: i32) {
    let home = ctx.db();
    if ctx.select(db) {
        // What was restored and not looked at yet, `clear` counts and forgets.
        scan::unregistered(ctx)
            .iter()
            .filter(|(_, lock)| !Registry::is_unseen(lock))
            .for_each(|(_, lock)| lock.set_gone());
        ctx.select(home);
    }
}

unsafe extern "C" fn swapped(_ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, _when: u64, data: *mut c_void) {
    // SAFETY: this event's data is of this type.
    let Some(info) = (unsafe { data.cast::<RedisModuleSwapDbInfo>().as_ref() }) else { return };
    let (a, b) = (info.dbnum_first, info.dbnum_second);
    let wakes = state(|state| {
        state.swap(a, b);
        let at_a = state.waiting.mark_db(a);
        state.waiting.mark_db(b) || at_a
    });
    if wakes {
        soon::ask();
    }
}

unsafe extern "C" fn loading(_ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, when: u64, _data: *mut c_void) {
    stream::set_needed();
    if when == raw::REDISMODULE_SUBEVENT_LOADING_ENDED || when == raw::REDISMODULE_SUBEVENT_LOADING_FAILED {
        state(State::load_ended);
    } else {
        state(State::load_began);
    }
}

/// Whether the server is a replica. Cheaper to ask than its flags.
pub(super) fn is_replica() -> bool {
    IS_REPLICA.load(Relaxed)
}

fn set_replica(is_replica: bool) {
    IS_REPLICA.store(is_replica, Relaxed);
    state(|state| state.set_replica(is_replica));
}

unsafe extern "C" fn role_changed(_ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, role: u64, _data: *mut c_void) {
    stream::set_needed();
    let is_replica = role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA;
    set_replica(is_replica);
    if is_replica {
        // Redis ends these waits by itself, Valkey 9 not always.
        changes::wake::fail_everybody(changes::wake::DEMOTED);
        // The locks are the new primary's, and keep their deadlines.
        state(|state| {
            state.bindings.clear(-1);
            state.forget_jobs();
        });
    }
}

unsafe extern "C" fn client_changed(_ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, when: u64, data: *mut c_void) {
    if when != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    // SAFETY: this event's data is of this type.
    let Some(info) = (unsafe { data.cast::<RedisModuleClientInfo>().as_ref() }) else { return };
    let any = state(|state| {
        if state.bindings.is_empty() {
            return false;
        }
        let closed_at_ms = clock::wall().ms();
        let numbers = state.bindings.close(info.id);
        let any = !numbers.is_empty();
        state.jobs.extend(numbers.into_iter().map(|number| Job::Linger { number, closed_at_ms }));
        any
    });
    if any {
        timer::arm(0);
    }
}

unsafe extern "C" fn forked(ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, _when: u64, _data: *mut c_void) {
    stream::forked(ctx);
}

unsafe extern "C" fn replica_changed(
    _ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    _when: u64,
    _data: *mut c_void,
) {
    stream::set_needed();
}

/// Asks the server to say, or not to say any more, when it is about to reply to the clients of a turn. Asked for only
/// while somebody waits, since it costs every turn of the event loop a call. False if the server refuses.
pub fn watch_turns(on: bool) -> bool {
    if WATCHES_TURNS.load(Relaxed) == on {
        return true;
    }
    let event = RedisModuleEvent { id: raw::REDISMODULE_EVENT_EVENTLOOP, dataver: 1 };
    let callback: RedisModuleEventCallback = if on { Some(turn) } else { None };
    // SAFETY: a live context; the callback is a function of this module, which is never unloaded.
    let done = api!(RedisModule_SubscribeToServerEvent(timer::detached().raw(), event, callback)) == Some(OK);
    if done {
        WATCHES_TURNS.store(on, Relaxed);
        IS_LATE.store(true, Relaxed);
    }
    done
}

/// Sees to it that the server says once more, and at once, that it is about to reply, if it has said so in this turn.
pub(super) fn want_turn() {
    // Once is enough for all that is told then. The timer would come late: Redis 7.0 has reckoned by now how long it sleeps.
    if IS_LATE.swap(false, Relaxed) {
        // SAFETY: the callback takes no data.
        let _ = api!(RedisModule_EventLoopAddOneShot(Some(wake_up), ptr::null_mut()));
    }
}

unsafe extern "C" fn wake_up(_data: *mut c_void) {}

unsafe extern "C" fn turn(_ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, when: u64, _data: *mut c_void) {
    let is_before_sleep = when == raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP;
    if is_before_sleep && state(|state| !state.ended.is_empty()) {
        blocking::tell();
    }
    IS_LATE.store(is_before_sleep, Relaxed);
}

unsafe extern "C" fn cron(ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, _when: u64, _data: *mut c_void) {
    if timer::is_overdue_by(OVERDUE_MS) {
        timer::rearm();
    }
    stream::look(ctx);
    state(State::sweep_holders);
}

unsafe extern "C" fn configured(ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, _when: u64, data: *mut c_void) {
    // SAFETY: this event's data is of this type, with that many C strings.
    let Some(info) = (unsafe { data.cast::<raw::RedisModuleConfigChange>().as_ref() }) else { return };
    for index in 0..usize::try_from(info.num_changes).unwrap_or_default() {
        let name = unsafe { *info.config_names.wrapping_add(index) };
        if !name.is_null() && unsafe { CStr::from_ptr(name) } == c"maxmemory-policy" {
            config::warn_of_eviction(ctx);
        }
    }
}

/// A key, of whatever type, has expired or was evicted: whoever waits for it is to get it. If it was the lock whose name was
/// just unlinked, its end is counted as what it was.
unsafe extern "C" fn key_gone(
    ctx: *mut RedisModuleCtx,
    class: c_int,
    _event: *const c_char,
    key: *mut RedisModuleString,
) -> c_int {
    // SAFETY: the context and the name of this call.
    let ctx = unsafe { Ctx::new(ctx) };
    let key = unsafe { Str::new(key) };
    let (db, key) = (ctx.db(), key.bytes());
    if state(|state| state.waiting.mark(db, key)) {
        soon::ask();
    }
    state(|state| {
        let Some((place, at_ms)) = state.last_unlinked else { return };
        if place != state.place_hash(db, key) {
            return;
        }
        state.last_unlinked = None;
        // Else it is another key that had this name since.
        if clock::monotonic_ms().saturating_sub(at_ms) > EXPLAINED_WITHIN_MS {
            return;
        }
        state.stats.deleted = state.stats.deleted.saturating_sub(1);
        let counter =
            if class == raw::REDISMODULE_NOTIFY_EVICTED { &mut state.stats.evicted } else { &mut state.stats.expired };
        *counter = counter.saturating_add(1);
    });
    OK
}
