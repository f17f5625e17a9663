//! A server small enough to live inside a fuzz target: it loads the module by its real entry and offers it the part of the
//! API that it uses, with a real server's manners: what is freed when, and which callback comes after which.
//!
//! Strings, open keys and handles are allocations of their own, so that AddressSanitizer sees every use after their end.

mod api;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::time::{SystemTime, UNIX_EPOCH};

use redis_module::raw;

use crate::locks::{Bytes, codec, stored};

/// Stands for every pointer of the API that has no type of its own here.
pub type Any = *mut c_void;
type CommandFn = unsafe extern "C" fn(Any, *mut Any, c_int) -> c_int;
type FreeFn = unsafe extern "C" fn(Any, Any);
type EventFn = unsafe extern "C" fn(Any, Event, u64, Any);
type KeyspaceFn = unsafe extern "C" fn(Any, c_int, *const c_char, Any) -> c_int;
type TimerFn = unsafe extern "C" fn(Any, Any);
type SettingFn = unsafe extern "C" fn(*const c_char, c_longlong, Any, *mut Any) -> c_int;

/// The id of the one client whose commands run; those that wait have ids of their own.
const CLIENT: u64 = 1;
pub const DATABASES: usize = 2;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event {
    id: u64,
    version: u64,
}

/// A module finds the API through the first field of its context.
#[repr(C)]
struct Context {
    get_api: *const c_void,
    /// The client that is told or unblocked, for the callbacks of waits.
    blocked: *mut Blocked,
    parcel: Any,
}

/// What lies under a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Lock(Any),
    Text(Vec<u8>),
    /// Of a type that neither the module nor its commands know.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub value: Value,
    /// Unix time in ms; -1 for none.
    pub expires_at_ms: i64,
}

/// A part of a reply, in the order in which the module says them.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Array(i64),
    Map(i64),
    Bytes(Vec<u8>),
    Int(i64),
    Null,
    Error(String),
}

/// A client that waits.
struct Blocked {
    id: u64,
    reply: CommandFn,
    timeout: CommandFn,
    free: FreeFn,
    disconnect: Option<unsafe extern "C" fn(Any, Any)>,
    is_connected: bool,
    parcel: Any,
}

#[derive(Default)]
struct World {
    keys: Vec<BTreeMap<Vec<u8>, Entry>>,
    db: usize,
    now_us: i64,
    flags: u32,
    replies: Vec<Reply>,
    /// How often the module has written into the stream.
    streamed: u64,
    commands: HashMap<String, CommandFn>,
    methods: Option<raw::RedisModuleTypeMethods>,
    events: HashMap<u64, EventFn>,
    key_gone: Option<KeyspaceFn>,
    setting: Option<SettingFn>,
    timer: Option<(u64, TimerFn, Any)>,
    timers: u64,
    waiting: Vec<*mut Blocked>,
    given_back: VecDeque<*mut Blocked>,
    clients: u64,
    /// The payload that is being loaded, or what was saved.
    payload: Vec<u8>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// The world, never while the module runs: it comes back here.
fn world<R>(look: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(look)
}

fn context() -> Box<Context> {
    Box::new(Context { get_api: api::get as *const c_void, blocked: ptr::null_mut(), parcel: ptr::null_mut() })
}

/// A string of the server, freed by [`free_string`].
fn string(bytes: &[u8]) -> Any {
    Box::into_raw(Box::new(bytes.to_vec())).cast()
}

unsafe fn bytes_of<'a>(string: Any) -> &'a [u8] {
    unsafe { &*string.cast::<Vec<u8>>() }
}

unsafe fn free_string(string: Any) {
    drop(unsafe { Box::from_raw(string.cast::<Vec<u8>>()) });
}

/// Names of both the key and the database, as callbacks of the type ask for them.
struct KeyOpt {
    name: Any,
    db: c_int,
}

/// Loads the module, once for a whole process.
pub fn load() {
    world(|world| {
        world.keys = vec![BTreeMap::new(); DATABASES];
        world.flags = raw::REDISMODULE_CTX_FLAGS_MASTER;
        world.clients = CLIENT;
    });
    set_clock();
    let mut context = context();
    let context = (&raw mut *context).cast::<raw::RedisModuleCtx>();
    assert_eq!(unsafe { crate::server::load::RedisModule_OnLoad(context, ptr::null_mut(), 0) }, 0, "it loads");
}

/// Sets the clock of commands to the real one, which the module's timers use.
pub fn set_clock() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    world(|world| world.now_us = i64::try_from(now.as_micros()).expect("this century"));
}

pub fn now_ms() -> i64 {
    world(|world| world.now_us / 1_000)
}

/// Lets time pass for commands.
pub fn advance_ms(ms: i64) {
    world(|world| world.now_us += ms * 1_000);
}

pub fn select(db: usize) {
    world(|world| world.db = db % DATABASES);
}

/// A primary becomes a replica, whose commands come from its primary, or the other way round.
pub fn set_replicated(on: bool) {
    let replica =
        raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_READONLY | raw::REDISMODULE_CTX_FLAGS_REPLICATED;
    let before = world(|world| {
        std::mem::replace(&mut world.flags, if on { replica } else { raw::REDISMODULE_CTX_FLAGS_MASTER })
    });
    if (before & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0) == on {
        return;
    }
    let callback = world(|world| world.events[&raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED]);
    let event = Event { id: raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, version: 1 };
    let role = if on {
        raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA
    } else {
        raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER
    };
    let mut context = context();
    unsafe { callback((&raw mut *context).cast(), event, role.into(), ptr::null_mut()) };
}

/// Whether commands run in a transaction.
pub fn set_multi(on: bool) {
    let multi = raw::REDISMODULE_CTX_FLAGS_MULTI;
    world(|world| world.flags = if on { world.flags | multi } else { world.flags & !multi });
}

/// All that lies in the selected database, but for what is past its deadline.
pub fn keyspace() -> BTreeMap<Vec<u8>, Entry> {
    let (db, now_ms) = world(|world| (world.db, world.now_us / 1_000));
    let mut keys = world(|world| world.keys[db].clone());
    keys.retain(|_, entry| entry.expires_at_ms < 0 || entry.expires_at_ms >= now_ms);
    keys
}

pub fn streamed() -> u64 {
    world(|world| world.streamed)
}

/// Runs a command and gives its reply; `None` if the client waits.
pub fn call(args: &[&[u8]]) -> Option<Vec<Reply>> {
    let name = String::from_utf8_lossy(args[0]).to_uppercase();
    let command = world(|world| {
        world.replies.clear();
        world.commands[&name]
    });
    let waited = world(|world| world.waiting.len());
    let mut argv: Vec<Any> = args.iter().map(|arg| string(arg)).collect();
    let mut context = context();
    let argc = c_int::try_from(argv.len()).expect("few");
    unsafe { command((&raw mut *context).cast(), argv.as_mut_ptr(), argc) };
    argv.into_iter().for_each(|arg| unsafe { free_string(arg) });
    let replies = world(|world| std::mem::take(&mut world.replies));
    let waits = world(|world| world.waiting.len()) > waited;
    assert_eq!(replies.is_empty(), waits, "one reply, or a wait: {replies:?}");
    if waits {
        return None;
    }
    assert_eq!(whole(&replies), Some(replies.len()), "one whole reply: {replies:?}");
    Some(replies)
}

/// The same from within the module.
fn called(args: &[&[u8]]) -> Vec<Reply> {
    let outer = world(|world| std::mem::take(&mut world.replies));
    let reply = call(args).expect("a call from within does not wait");
    world(|world| world.replies = outer);
    reply
}

/// How many parts the first value of a reply has, if it is whole.
fn whole(replies: &[Reply]) -> Option<usize> {
    let elements = match replies.first()? {
        Reply::Array(len) => usize::try_from(*len).ok()?,
        Reply::Map(len) => usize::try_from(*len).ok()? * 2,
        _ => 0,
    };
    (0..elements).try_fold(1, |end, _| Some(end + whole(replies.get(end..)?)?))
}

/// The end of a turn of the event loop: who is to be told is told.
pub fn turn() {
    let before_sleep = world(|world| world.events.get(&raw::REDISMODULE_EVENT_EVENTLOOP).copied());
    if let Some(callback) = before_sleep {
        let event = Event { id: raw::REDISMODULE_EVENT_EVENTLOOP, version: 1 };
        let mut context = context();
        let when = raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP;
        unsafe { callback((&raw mut *context).cast(), event, when, ptr::null_mut()) };
    }
    while let Some(blocked) = world(|world| world.given_back.pop_front()) {
        let mut context = context();
        let raw_context: Any = (&raw mut *context).cast();
        let (is_connected, parcel) = unsafe { ((*blocked).is_connected, (*blocked).parcel) };
        if is_connected {
            (context.blocked, context.parcel) = (blocked, parcel);
            world(|world| world.replies.clear());
            unsafe { ((*blocked).reply)(raw_context, ptr::null_mut(), 0) };
            let replies = world(|world| std::mem::take(&mut world.replies));
            assert_eq!(whole(&replies), Some(replies.len()), "one whole reply to a waiter: {replies:?}");
        }
        if !parcel.is_null() {
            unsafe { ((*blocked).free)(raw_context, parcel) };
        }
        world(|world| world.waiting.retain(|other| *other != blocked));
        drop(unsafe { Box::from_raw(blocked) });
    }
}

fn nth_waiting(number: usize) -> Option<*mut Blocked> {
    let connected = |blocked: &*mut Blocked| unsafe { (**blocked).is_connected };
    world(|world| {
        let waiting: Vec<_> = world.waiting.iter().copied().filter(connected).collect();
        (!waiting.is_empty()).then(|| waiting[number % waiting.len()])
    })
}

/// A client that waits closes its connection.
pub fn disconnect(number: usize) {
    let Some(blocked) = nth_waiting(number) else { return };
    let (id, callback) = unsafe {
        (*blocked).is_connected = false;
        ((*blocked).id, (*blocked).disconnect)
    };
    let mut context = context();
    if let Some(callback) = callback {
        unsafe { callback((&raw mut *context).cast(), blocked.cast()) };
    }
    closed(id);
}

/// A client that waits is unblocked as if its time were up.
pub fn unblock(number: usize) {
    let Some(blocked) = nth_waiting(number) else { return };
    let mut context = context();
    context.blocked = blocked;
    world(|world| world.replies.clear());
    unsafe { ((*blocked).timeout)((&raw mut *context).cast(), ptr::null_mut(), 0) };
    let replies = world(|world| std::mem::take(&mut world.replies));
    assert_eq!(whole(&replies), Some(replies.len()), "one whole reply to whom is unblocked: {replies:?}");
    unsafe { (*blocked).is_connected = false };
}

/// The client whose commands run closes its connection; another takes its place.
pub fn reconnect() {
    let id = world(|world| {
        world.clients += 1;
        world.clients - 1
    });
    closed(id);
}

fn closed(id: u64) {
    let callback = world(|world| world.events.get(&raw::REDISMODULE_EVENT_CLIENT_CHANGE).copied());
    let mut info: raw::RedisModuleClientInfo = unsafe { std::mem::zeroed() };
    (info.version, info.id) = (1, id);
    if let Some(callback) = callback {
        let event = Event { id: raw::REDISMODULE_EVENT_CLIENT_CHANGE, version: 1 };
        let mut context = context();
        let when = raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED;
        unsafe { callback((&raw mut *context).cast(), event, when, (&raw mut info).cast()) };
    }
}

/// Fires the timer, if one is armed. False if there was none.
pub fn fire() -> bool {
    let Some((_, callback, data)) = world(|world| world.timer.take()) else { return false };
    let mut context = context();
    unsafe { callback((&raw mut *context).cast(), data) };
    true
}

/// Tells the module that a lock leaves its name, as the server does first of all.
fn unlink(db: usize, name: &[u8], value: Any) {
    let methods = world(|world| world.methods.expect("a type"));
    let mut key = KeyOpt { name: string(name), db: db as c_int };
    unsafe {
        methods.unlink2.expect("unlink2")((&raw mut key).cast(), value);
        free_string(key.name);
    }
}

fn free_value(entry: Entry) {
    if let Value::Lock(value) = entry.value {
        let methods = world(|world| world.methods.expect("a type"));
        unsafe { methods.free.expect("free")(value) };
    }
}

/// Removes a key as DEL does.
pub fn delete(db: usize, name: &[u8]) -> bool {
    let Some(entry) = world(|world| world.keys[db].get(name).cloned()) else { return false };
    if let Value::Lock(value) = entry.value {
        unlink(db, name, value);
    }
    if let Some(entry) = world(|world| world.keys[db].remove(name)) {
        free_value(entry);
    }
    true
}

/// Removes a key that is past its deadline, as the server does when it is looked at.
fn delete_if_lapsed(db: usize, name: &[u8]) {
    let is_lapsed = world(|world| {
        let now_ms = world.now_us / 1_000;
        world.keys[db].get(name).is_some_and(|entry| (0..now_ms).contains(&entry.expires_at_ms))
    });
    if !is_lapsed || !delete(db, name) {
        return;
    }
    let (callback, home) = world(|world| (world.key_gone, world.db));
    if let Some(callback) = callback {
        let mut context = context();
        let key = string(name);
        world(|world| world.db = db);
        unsafe {
            let class = raw::REDISMODULE_NOTIFY_EXPIRED as c_int;
            callback((&raw mut *context).cast(), class, c"expired".as_ptr(), key);
            free_string(key);
        }
        world(|world| world.db = home);
    }
}

/// Puts something in place of whatever lies there, as SET does.
pub fn put(name: &[u8], value: Value, expires_at_ms: i64) {
    let db = world(|world| world.db);
    delete(db, name);
    world(|world| world.keys[db].insert(name.to_vec(), Entry { value, expires_at_ms }));
}

/// The value survives under its new name, as with RENAME and MOVE.
pub fn rename(from: &[u8], to: &[u8], to_db: usize) {
    let (db, to_db) = (world(|world| world.db), to_db % DATABASES);
    if (db, from) == (to_db, to) || world(|world| !world.keys[db].contains_key(from)) {
        return;
    }
    delete(to_db, to);
    let entry = world(|world| world.keys[db][from].clone());
    if let Value::Lock(value) = entry.value {
        unlink(db, from, value);
    }
    world(|world| {
        world.keys[db].remove(from);
        world.keys[to_db].insert(to.to_vec(), entry);
    });
}

/// Sets or takes away a deadline, as PEXPIRE and PERSIST do. The module is not asked.
pub fn expire(name: &[u8], in_ms: Option<i64>) {
    world(|world| {
        let at_ms = in_ms.map_or(-1, |ms| world.now_us / 1_000 + ms);
        let db = world.db;
        world.keys[db].get_mut(name).into_iter().for_each(|entry| entry.expires_at_ms = at_ms);
    });
}

/// Empties the selected database: values are freed without a word about each.
pub fn flush() {
    let db = world(|world| world.db);
    let callback = world(|world| world.events[&raw::REDISMODULE_EVENT_FLUSHDB]);
    let mut info: raw::RedisModuleFlushInfo = unsafe { std::mem::zeroed() };
    (info.version, info.dbnum) = (1, db as i32);
    let event = Event { id: raw::REDISMODULE_EVENT_FLUSHDB, version: 1 };
    let mut tell = |when: u64| {
        let mut context = context();
        unsafe { callback((&raw mut *context).cast(), event, when, (&raw mut info).cast()) };
    };
    tell(raw::REDISMODULE_SUBEVENT_FLUSHDB_START);
    for entry in world(|world| std::mem::take(&mut world.keys[db])).into_values() {
        free_value(entry);
    }
    tell(raw::REDISMODULE_SUBEVENT_FLUSHDB_END);
}

/// Exchanges the two databases.
pub fn swap() {
    let callback = world(|world| world.events[&raw::REDISMODULE_EVENT_SWAPDB]);
    world(|world| world.keys.swap(0, 1));
    let mut info: raw::RedisModuleSwapDbInfo = unsafe { std::mem::zeroed() };
    (info.version, info.dbnum_first, info.dbnum_second) = (1, 0, 1);
    let mut context = context();
    let event = Event { id: raw::REDISMODULE_EVENT_SWAPDB, version: 1 };
    unsafe { callback((&raw mut *context).cast(), event, 0, (&raw mut info).cast()) };
}

/// RESTORE: what the module reads from the payload, if it takes it.
pub fn restore(name: &[u8], payload: &[u8], encoding: c_int) -> bool {
    let db = world(|world| {
        world.payload = payload.to_vec();
        world.db
    });
    let methods = world(|world| world.methods.expect("a type"));
    let mut io = KeyOpt { name: string(name), db: db as c_int };
    let value = unsafe { methods.rdb_load.expect("rdb_load")((&raw mut io).cast(), encoding) };
    unsafe { free_string(io.name) };
    if value.is_null() {
        return false;
    }
    put(name, Value::Lock(value), -1);
    true
}

/// DUMP, DEBUG DIGEST and MEMORY USAGE: the payload of a lock.
pub fn dump(name: &[u8]) -> Option<Vec<u8>> {
    let db = world(|world| world.db);
    let Some(Value::Lock(value)) = world(|world| world.keys[db].get(name).map(|entry| entry.value.clone())) else {
        return None;
    };
    let methods = world(|world| world.methods.expect("a type"));
    let mut key = KeyOpt { name: string(name), db: db as c_int };
    unsafe {
        methods.rdb_save.expect("rdb_save")(ptr::null_mut(), value);
        let saved = world(|world| world.payload.clone());
        methods.digest.expect("digest")(ptr::null_mut(), value);
        let (said, mut room) = (world(|world| world.payload.clone()), Bytes::new());
        assert_eq!(codec::decode(&said).map(|said| said.grant), stored::decode(&saved, &mut room));
        methods.aof_rewrite.expect("aof_rewrite")(ptr::null_mut(), key.name.cast(), value);
        assert!(methods.mem_usage2.expect("mem_usage2")((&raw mut key).cast(), value, 0) > 0);
        free_string(key.name);
        Some(saved)
    }
}

/// CONFIG SET of the module's one setting: whether it takes the value.
pub fn set_cap_ms(ms: i64) -> bool {
    let set = world(|world| world.setting.expect("a setting"));
    let name: &CStr = c"max-ttl-ms";
    unsafe { set(name.as_ptr(), ms, ptr::null_mut(), ptr::null_mut()) == 0 }
}

/// Ends everything: nobody waits, nothing lies anywhere.
pub fn clear() {
    set_multi(false);
    set_replicated(false);
    reconnect();
    while nth_waiting(0).is_some() {
        disconnect(0);
        turn();
    }
    for db in 0..DATABASES {
        select(db);
        flush();
    }
    for _ in 0..1_000 {
        turn();
        if !fire() {
            break;
        }
    }
    turn();
    assert!(world(|world| world.waiting.is_empty()), "a handle that was never given back");
    for db in 0..DATABASES {
        select(db);
        assert_eq!(call(&[b"PRLOCK.LIST"]), Some(vec![Reply::Array(0)]));
        flush();
    }
    select(0);
    set_cap_ms(86_400_000);
}
