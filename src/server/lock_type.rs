//! The native type: what the server calls to save, load, free and describe a lock.
//!
//! The name is the type's identity in every RDB for ever, and each encoding version says for ever what it says now.
//! There is no aux data: once every lock is gone, a server without the module loads the RDB.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::{
    RedisModuleCtx, RedisModuleDigest, RedisModuleIO, RedisModuleKeyOptCtx, RedisModuleString, RedisModuleType,
    RedisModuleTypeMethods,
};

use super::key::Key;
use super::log::{Level, log};
use super::main_thread::state;
use super::string::Str;
use super::value::{self, Seen};
use super::{clock, imports, soon, timer};
use crate::locks::codec::{self, Change};
use crate::locks::holders::Holder;
use crate::locks::lock::{Grant, Lock};
use crate::locks::{Bytes, fence, stored};

/// What `TYPE key` prints: 9 characters, as the server demands.
const NAME: &std::ffi::CStr = c"prlock-rs";
/// The form that `locks/stored.rs` writes. Every earlier one is read for ever.
const ENCODING: c_int = 1;
/// The form of `locks/codec.rs`, which the stream of changes still carries.
const FIRST_ENCODING: c_int = 0;
/// No stored form is as long: each is little more than 512 bytes of token and 512 of holder.
const STORED_BYTES_MAX: usize = 4_096;
/// What the registry needs for a lock, about: its places in both ordered sets.
const REGISTRY_BYTES: usize = 28;

static TYPE: AtomicPtr<RedisModuleType> = AtomicPtr::new(ptr::null_mut());
/// The lock that the module itself deletes now, having done what `unlink` would do; null for none.
static DELETING: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The type as the server knows it; null before it is registered.
pub(super) fn raw() -> *mut RedisModuleType {
    TYPE.load(Relaxed)
}

/// Whether a value's type is this one.
pub(super) fn is_ours(found: *mut RedisModuleType) -> bool {
    found == raw()
}

/// Runs `f`, which deletes this lock and does by itself what `unlink` would do. Any other that goes meanwhile, as another
/// module that is told of the deletion may want, goes as ever.
pub(super) fn while_deleting(value: *mut c_void, f: impl FnOnce()) {
    // Not `swap`, which waits for other processors' caches: the server makes one callback at a time.
    let outer = DELETING.load(Relaxed);
    DELETING.store(value, Relaxed);
    f();
    DELETING.store(outer, Relaxed);
}

/// Registers the type. False if the server refuses.
pub(super) fn create(ctx: *mut RedisModuleCtx) -> bool {
    let mut methods = RedisModuleTypeMethods {
        // The newest version that Redis 7.0 knows; later servers take it too.
        version: 4,
        rdb_load: Some(load),
        rdb_save: Some(save),
        aof_rewrite: Some(rewrite),
        mem_usage: None,
        digest: Some(digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        // Without a copy function COPY is refused: two keys must not share one ownership.
        copy: None,
        defrag: None,
        mem_usage2: Some(memory),
        free_effort2: None,
        unlink2: Some(unlink),
        copy2: None,
        aux_save2: None,
    };
    // SAFETY: a live context; the server copies the methods.
    let created = api!(RedisModule_CreateDataType(ctx, NAME.as_ptr(), ENCODING, &raw mut methods));
    let created = created.unwrap_or(ptr::null_mut());
    TYPE.store(created, Relaxed);
    !created.is_null()
}

/// A lock as PRLOCK.APPLY carries it; its deadline is the key's own.
fn said(lock: &Lock) -> Bytes {
    let (mut token, mut bytes) = (Bytes::new(), Bytes::new());
    lock.token_into(&mut token);
    codec::encode(Change::Stored, &lock.grant(&token), None, &mut bytes);
    bytes
}

/// Called in a forked child (BGSAVE) or on the main thread (SAVE, DUMP, MIGRATE).
unsafe extern "C" fn save(io: *mut RedisModuleIO, value: *mut c_void) {
    // SAFETY: a value of our type, kept by the keyspace during the call.
    let lock = unsafe { Seen::new(value) };
    let (mut token, mut bytes) = (Bytes::new(), Bytes::new());
    lock.token_into(&mut token);
    stored::encode(&lock.grant(&token), &mut bytes);
    // SAFETY: the server copies the bytes.
    let _ = api!(RedisModule_SaveStringBuffer(io, bytes.as_ptr().cast::<c_char>(), bytes.len()));
}

/// Called at start, full synchronisation, DEBUG RELOAD and RESTORE. Null makes the server refuse the file or payload.
unsafe extern "C" fn load(io: *mut RedisModuleIO, encoding: c_int) -> *mut c_void {
    if !(FIRST_ENCODING..=ENCODING).contains(&encoding) {
        log(Level::Warning, "prlock: a lock of an unknown encoding version; was it written by a later release?");
        return ptr::null_mut();
    }
    let mut len = 0;
    // SAFETY: a live io; the server allocates the buffer for us, or returns null on a read error.
    let buffer = api!(RedisModule_LoadStringBuffer(io, &raw mut len)).unwrap_or(ptr::null_mut());
    if buffer.is_null() {
        return ptr::null_mut();
    }
    let lock = if len <= STORED_BYTES_MAX {
        // SAFETY: `len` bytes at `buffer`, ours until freed below.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>().cast_const(), len) };
        match encoding {
            FIRST_ENCODING => codec::decode(bytes).and_then(|decoded| {
                loaded(io, &decoded.grant, |key, holder| Lock::with_holder(key, &decoded.grant, holder))
            }),
            _ => stored::read(bytes).and_then(|(token, grant)| {
                loaded(io, &grant, |key, holder| Lock::with_kept_token(key, &grant, token, holder))
            }),
        }
    } else {
        None
    };
    // SAFETY: our buffer, freed once.
    let _ = api!(RedisModule_Free(buffer.cast::<c_void>()));
    match lock {
        Some(lock) => value::give(&lock),
        None => {
            log(
                Level::Warning,
                "prlock: a lock in an RDB or payload is broken, or its fence is too far ahead; refused",
            );
            ptr::null_mut()
        }
    }
}

/// The lock of this grant, made of its key and its label's share and noted for the registry, or `None` if it is not
/// acceptable from where it came.
fn loaded(io: *mut RedisModuleIO, grant: &Grant<'_>, made: impl FnOnce(&[u8], Option<Holder>) -> Lock) -> Option<Lock> {
    if comes_from_a_client() && !fence::is_plausible(grant.fence, clock::wall().us) {
        return None;
    }
    // SAFETY: a live io. The name is on the server's stack: read, not kept.
    let name = api!(RedisModule_GetKeyNameFromIO(io)).unwrap_or(ptr::null());
    let key = if name.is_null() { &[][..] } else { unsafe { Str::new(name.cast_mut()) }.bytes() };
    // SAFETY: a live io.
    let db = api!(RedisModule_GetDbIdFromIO(io)).unwrap_or(-1);
    let shared = state(|state| state.holders.share(grant.holder));
    let lock = made(key, shared);
    state(|state| {
        state.fences.seen(lock.fence());
        state.registry.note_loaded(db, &lock, key, grant.holder);
        state.waiting.mark(db, key)
    })
    .then(soon::ask);
    Some(lock)
}

/// Whether the payload was sent by RESTORE on a primary, and not read from a file or the primary. On a replica that takes
/// writes of its own clients nothing tells theirs from the primary's here, and to refuse the primary's would make copies
/// differ.
fn comes_from_a_client() -> bool {
    let flags = timer::detached().flags();
    flags.is_primary() && !flags.is_loading()
}

/// Called in the forked child of BGREWRITEAOF, where the AOF is all commands. The server adds the deadline itself.
unsafe extern "C" fn rewrite(io: *mut RedisModuleIO, key: *mut RedisModuleString, value: *mut c_void) {
    // SAFETY: a value of our type, kept by the keyspace during the call.
    let bytes = said(&*unsafe { Seen::new(value) });
    // SAFETY: the format names a string of the server and a buffer with its length.
    let _ = api!(RedisModule_EmitAOF(
        io,
        crate::commands::APPLY.as_ptr(),
        c"sb".as_ptr(),
        key,
        bytes.as_ptr(),
        bytes.len()
    ));
}

/// Called on the main thread or a background thread: it lets go of the value and touches nothing else.
unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the keyspace's share, given up for good.
    unsafe { value::take(value) }.set_gone();
}

unsafe extern "C" fn memory(_key: *mut RedisModuleKeyOptCtx, value: *const c_void, _samples: usize) -> usize {
    // SAFETY: a value of our type, kept by the keyspace during the call.
    unsafe { Seen::new(value.cast_mut()) }.heap_bytes().saturating_add(REGISTRY_BYTES)
}

/// What DEBUG DIGEST compares between a primary and its replicas.
unsafe extern "C" fn digest(digest: *mut RedisModuleDigest, value: *mut c_void) {
    // SAFETY: a value of our type, kept by the keyspace during the call.
    let bytes = said(&*unsafe { Seen::new(value) });
    // SAFETY: the server reads the bytes during the call.
    let _ = api!(RedisModule_DigestAddStringBuffer(digest, bytes.as_ptr().cast::<c_char>(), bytes.len()));
    let _ = api!(RedisModule_DigestEndSequence(digest));
}

/// Called on the main thread, just before a lock leaves its name: DEL, UNLINK, expiry, eviction, SET or RESTORE over it,
/// RENAME, MOVE, a slot that leaves. Not called by FLUSHDB and FLUSHALL (`events.rs`). It writes nothing.
unsafe extern "C" fn unlink(ctx: *mut RedisModuleKeyOptCtx, value: *const c_void) {
    if ptr::eq(DELETING.load(Relaxed), value) {
        return;
    }
    // SAFETY: a value of our type, kept by the keyspace during the call.
    let lock = unsafe { Seen::new(value.cast_mut()) };
    // SAFETY: the server's context for this call; the name lives during it.
    let name = api!(RedisModule_GetKeyNameFromOptCtx(ctx)).unwrap_or(ptr::null());
    let key = if name.is_null() { &[][..] } else { unsafe { Str::new(name.cast_mut()) }.bytes() };
    // SAFETY: as above.
    let db = api!(RedisModule_GetDbIdFromOptCtx(ctx)).unwrap_or(-1);
    let counts = timer::detached().flags().is_primary();
    let has_lapsed = counts && !name.is_null() && lapsed(db, unsafe { Str::new(name.cast_mut()) });
    let wakes = state(|state| {
        // Renamed twice without a look in between, it is lost only once.
        let is_news = state.registry.note_unlinked(db, &lock);
        if has_lapsed {
            state.stats.expired = state.stats.expired.saturating_add(is_news.into());
        } else if counts {
            state.stats.deleted = state.stats.deleted.saturating_add(is_news.into());
            state.last_unlinked = Some((state.place_hash(db, key), clock::monotonic_ms()));
        }
        state.waiting.mark(db, key)
    });
    if wakes {
        soon::ask();
    }
}

/// Whether the key that is being unlinked is past its deadline: asked on Valkey, whose word for that (the event of an expiry)
/// the module must not listen to. Valkey deletes nothing meanwhile, and shows the key as it was.
fn lapsed(db: i32, name: Str<'_>) -> bool {
    if !imports::is_valkey() {
        return false;
    }
    let ctx = timer::detached();
    let home = ctx.db();
    let has_lapsed =
        ctx.select(db) && Key::look(ctx, name).expires_at_ms().is_some_and(|at_ms| at_ms <= clock::wall().ms());
    ctx.select(home);
    has_lapsed
}
