//! The API, as far as the module uses it. Functions that are not here the module finds missing, as on an older server.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_ulonglong, c_void};
use std::ptr;

use redis_module::raw;

use super::{
    Any, Blocked, CommandFn, Context, Entry, Event, EventFn, FreeFn, KeyOpt, KeyspaceFn, Reply, SettingFn, TimerFn,
    Value, bytes_of, called, context, delete, delete_if_lapsed, free_string, string, world,
};

const OK: c_int = 0;
const ERR: c_int = 1;

/// An open key.
struct Key {
    db: usize,
    name: Vec<u8>,
}

macro_rules! table {
    ($name:expr, $($function:ident),* $(,)?) => {
        match $name {
            $(concat!("RedisModule_", stringify!($function)) => $function as *const c_void,)*
            _ => ptr::null(),
        }
    };
}

/// What the first field of a context leads to.
#[allow(non_snake_case)]
pub(super) unsafe extern "C" fn get(name: *const c_char, function: *mut *const c_void) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("ASCII");
    let found = table!(
        name,
        ACLCheckCommandPermissions,
        ACLCheckKeyPermissions,
        Call,
        CallReplyStringPtr,
        FreeCallReply,
        AvoidReplicaTraffic,
        BlockClient,
        CachedMicroseconds,
        CloseKey,
        CreateCommand,
        CreateDataType,
        CreateString,
        CreateTimer,
        DeleteKey,
        DigestAddStringBuffer,
        DigestEndSequence,
        EmitAOF,
        Free,
        FreeModuleUser,
        FreeString,
        FreeThreadSafeContext,
        GetAbsExpire,
        GetBlockedClientHandle,
        GetBlockedClientPrivateData,
        GetClientId,
        GetClientInfoById,
        GetClientNameById,
        GetClientUserNameById,
        GetCommand,
        GetContextFlags,
        GetDbIdFromIO,
        GetDbIdFromOptCtx,
        GetDetachedThreadSafeContext,
        GetKeyNameFromIO,
        GetKeyNameFromOptCtx,
        GetModuleUserFromUserName,
        GetSelectedDb,
        KeyType,
        LoadConfigs,
        LoadStringBuffer,
        Log,
        ModuleTypeGetType,
        ModuleTypeGetValue,
        ModuleTypeReplaceValue,
        ModuleTypeSetValue,
        NotifyKeyspaceEvent,
        OpenKey,
        RedactClientCommandArgument,
        RegisterInfoFunc,
        RegisterNumericConfig,
        Replicate,
        ReplicateVerbatim,
        ReplyWithArray,
        ReplyWithError,
        ReplyWithLongLong,
        ReplyWithMap,
        ReplyWithNull,
        ReplyWithStringBuffer,
        ReplySetArrayLength,
        SaveStringBuffer,
        Scan,
        ScanCursorCreate,
        ScanCursorDestroy,
        SelectDb,
        SetAbsExpire,
        SetCommandInfo,
        SetDisconnectCallback,
        SetModuleAttribs,
        SetModuleOptions,
        SignalModifiedKey,
        StopTimer,
        StringDMA,
        StringPtrLen,
        SubscribeToKeyspaceEvents,
        SubscribeToServerEvent,
        UnblockClient,
    );
    unsafe { *function = found };
    if found.is_null() { ERR } else { OK }
}

// The names are the API's own.
macro_rules! api {
    ($(fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(#[allow(non_snake_case, unused_unsafe)] unsafe extern "C" fn $name($($arg: $kind),*) $(-> $result)? { unsafe { $body } })*
    };
}

unsafe fn key<'a>(key: Any) -> &'a Key {
    unsafe { &*key.cast::<Key>() }
}

fn entry(key: &Key) -> Option<Entry> {
    world(|world| world.keys[key.db].get(&key.name).cloned())
}

fn say(reply: Reply) -> c_int {
    world(|world| world.replies.push(reply));
    OK
}

unsafe fn name_of(key: Any) -> Any {
    unsafe { (*key.cast::<KeyOpt>()).name }
}

unsafe fn db_of(key: Any) -> c_int {
    unsafe { (*key.cast::<KeyOpt>()).db }
}

/// Stands for the type; only its address is used.
static TYPE: u8 = 0;

fn type_address() -> Any {
    (&raw const TYPE).cast_mut().cast()
}

api! {
    // Loading.
    fn SetModuleAttribs(_ctx: Any, _name: *const c_char, _version: c_int, _api: c_int) {}
    fn SetModuleOptions(_ctx: Any, _options: c_int) {}
    fn CreateCommand(_ctx: Any, name: *const c_char, run: CommandFn, _f: *const c_char, _a: c_int, _b: c_int, _c: c_int) -> c_int {
        let name = CStr::from_ptr(name).to_str().expect("ASCII").to_owned();
        world(|world| world.commands.insert(name, run));
        OK
    }
    fn GetCommand(_ctx: Any, name: *const c_char) -> Any { name.cast_mut().cast() }
    fn SetCommandInfo(_command: Any, _info: Any) -> c_int { OK }
    fn CreateDataType(_ctx: Any, _name: *const c_char, _encoding: c_int, methods: *const raw::RedisModuleTypeMethods) -> Any {
        world(|world| world.methods = Some(*methods));
        type_address()
    }
    fn RegisterNumericConfig(
        _ctx: Any, _name: *const c_char, _default: c_longlong, _flags: u32, _min: c_longlong, _max: c_longlong,
        _get: Any, set: SettingFn, _apply: Any, _data: Any,
    ) -> c_int {
        world(|world| world.setting = Some(set));
        OK
    }
    fn LoadConfigs(_ctx: Any) -> c_int { OK }
    fn RegisterInfoFunc(_ctx: Any, _function: Any) -> c_int { OK }
    fn SubscribeToServerEvent(_ctx: Any, event: Event, callback: Option<EventFn>) -> c_int {
        world(|world| match callback {
            Some(callback) => world.events.insert(event.id, callback),
            None => world.events.remove(&event.id),
        });
        OK
    }
    fn SubscribeToKeyspaceEvents(_ctx: Any, _classes: c_int, callback: KeyspaceFn) -> c_int {
        world(|world| world.key_gone = Some(callback));
        OK
    }
    fn GetDetachedThreadSafeContext(_ctx: Any) -> Any { Box::into_raw(context()).cast() }
    fn FreeThreadSafeContext(ctx: Any) { drop(Box::from_raw(ctx.cast::<Context>())); }
    fn Log(_ctx: Any, _level: *const c_char, _format: *const c_char) {}

    // The caller.
    fn GetContextFlags(_ctx: Any) -> c_int { world(|world| world.flags as c_int) }
    fn AvoidReplicaTraffic() -> c_int { 0 }
    fn CachedMicroseconds() -> c_longlong { world(|world| world.now_us) }
    fn GetSelectedDb(_ctx: Any) -> c_int { world(|world| world.db as c_int) }
    fn SelectDb(_ctx: Any, db: c_int) -> c_int {
        world(|world| match usize::try_from(db) {
            Ok(db) if db < world.keys.len() => {
                world.db = db;
                OK
            }
            _ => ERR,
        })
    }
    fn GetClientId(_ctx: Any) -> c_ulonglong { world(|world| world.clients) }
    fn GetClientInfoById(_info: Any, id: u64) -> c_int { if world(|world| world.clients == id) { OK } else { ERR } }
    fn GetClientNameById(_ctx: Any, _id: u64) -> Any { string(b"name") }
    fn GetClientUserNameById(_ctx: Any, _id: u64) -> Any { string(b"user") }
    fn GetModuleUserFromUserName(name: Any) -> Any { string(bytes_of(name)) }
    fn FreeModuleUser(user: Any) { free_string(user); }
    fn ACLCheckCommandPermissions(_user: Any, _argv: Any, _argc: c_int) -> c_int { OK }
    fn ACLCheckKeyPermissions(_user: Any, key: Any, _access: c_int) -> c_int {
        if bytes_of(key).starts_with(b"secret") { ERR } else { OK }
    }
    fn RedactClientCommandArgument(_ctx: Any, _index: c_int) -> c_int { OK }

    // Strings.
    fn StringPtrLen(string: Any, len: *mut usize) -> *const u8 {
        let bytes = bytes_of(string);
        if !len.is_null() {
            *len = bytes.len();
        }
        // A server's string has a NUL behind it and is never without memory; this one is as tight as can be.
        bytes.as_ptr()
    }
    fn CreateString(_ctx: Any, data: *const u8, len: usize) -> Any { string(std::slice::from_raw_parts(data, len)) }
    fn FreeString(_ctx: Any, string: Any) { free_string(string); }
    fn Free(memory: Any) { libc_free(memory); }

    // Keys.
    fn OpenKey(_ctx: Any, name: Any, _mode: c_int) -> Any {
        let (db, name) = (world(|world| world.db), bytes_of(name).to_vec());
        delete_if_lapsed(db, &name);
        Box::into_raw(Box::new(Key { db, name })).cast()
    }
    fn CloseKey(key: Any) { drop(Box::from_raw(key.cast::<Key>())); }
    fn KeyType(opened: Any) -> c_int {
        (match entry(key(opened)).map(|entry| entry.value) {
            None => raw::REDISMODULE_KEYTYPE_EMPTY,
            Some(Value::Text(_)) => raw::REDISMODULE_KEYTYPE_STRING,
            Some(Value::Lock(_)) => raw::REDISMODULE_KEYTYPE_MODULE,
            Some(Value::Other) => raw::REDISMODULE_KEYTYPE_LIST,
        }) as c_int
    }
    fn ModuleTypeGetType(opened: Any) -> Any {
        let is_lock = entry(key(opened)).is_some_and(|entry| matches!(entry.value, Value::Lock(_)));
        if is_lock { type_address() } else { ptr::null_mut() }
    }
    fn ModuleTypeGetValue(opened: Any) -> Any {
        match entry(key(opened)).map(|entry| entry.value) {
            Some(Value::Lock(value)) => value,
            _ => ptr::null_mut(),
        }
    }
    fn ModuleTypeSetValue(opened: Any, _kind: Any, value: Any) -> c_int {
        let Key { db, name } = key(opened);
        delete(*db, name);
        world(|world| world.keys[*db].insert(name.clone(), Entry { value: Value::Lock(value), expires_at_ms: -1 }));
        OK
    }
    fn ModuleTypeReplaceValue(opened: Any, _kind: Any, value: Any, old: *mut Any) -> c_int {
        let Key { db, name } = key(opened);
        world(|world| match world.keys[*db].get_mut(name) {
            Some(Entry { value: Value::Lock(place), .. }) => {
                *old = std::mem::replace(place, value);
                OK
            }
            _ => ERR,
        })
    }
    fn DeleteKey(opened: Any) -> c_int {
        let Key { db, name } = key(opened);
        delete(*db, name);
        OK
    }
    fn StringDMA(opened: Any, len: *mut usize, _mode: c_int) -> *const u8 {
        let Key { db, name } = key(opened);
        world(|world| match world.keys[*db].get(name) {
            Some(Entry { value: Value::Text(text), .. }) => {
                *len = text.len();
                text.as_ptr()
            }
            _ => ptr::null(),
        })
    }
    fn GetAbsExpire(opened: Any) -> c_longlong { entry(key(opened)).map_or(-1, |entry| entry.expires_at_ms) }
    fn SetAbsExpire(opened: Any, at_ms: c_longlong) -> c_int {
        let Key { db, name } = key(opened);
        if at_ms < -1 {
            return ERR;
        }
        world(|world| match world.keys[*db].get_mut(name) {
            Some(entry) => {
                entry.expires_at_ms = at_ms;
                OK
            }
            None => ERR,
        })
    }
    fn SignalModifiedKey(_ctx: Any, _name: Any) -> c_int { OK }
    fn NotifyKeyspaceEvent(_ctx: Any, _class: c_int, _event: *const c_char, _key: Any) -> c_int { OK }
    fn Replicate(_ctx: Any, _command: *const c_char) -> c_int {
        world(|world| world.streamed += 1);
        OK
    }
    fn ReplicateVerbatim(_ctx: Any) -> c_int {
        world(|world| world.streamed += 1);
        OK
    }
    fn ScanCursorCreate() -> Any { Box::into_raw(Box::new(0u8)).cast() }
    fn ScanCursorDestroy(cursor: Any) { drop(Box::from_raw(cursor.cast::<u8>())); }
    fn Scan(ctx: Any, _cursor: Any, found: unsafe extern "C" fn(Any, Any, Any, Any), data: Any) -> c_int {
        let (db, names) = world(|world| (world.db, world.keys[world.db].keys().cloned().collect::<Vec<_>>()));
        for name in names {
            let given = string(&name);
            let opened = OpenKey(ctx, given, 0);
            assert_eq!(key(opened).db, db);
            found(ctx, given, opened, data);
            CloseKey(opened);
            free_string(given);
        }
        0
    }

    // The type's callbacks.
    fn GetKeyNameFromIO(io: Any) -> Any { name_of(io) }
    fn GetDbIdFromIO(io: Any) -> c_int { db_of(io) }
    fn GetKeyNameFromOptCtx(key: Any) -> Any { name_of(key) }
    fn GetDbIdFromOptCtx(key: Any) -> c_int { db_of(key) }
    fn LoadStringBuffer(_io: Any, len: *mut usize) -> Any {
        let payload = world(|world| std::mem::take(&mut world.payload));
        *len = payload.len();
        libc_copy(&payload)
    }
    fn SaveStringBuffer(_io: Any, data: *const u8, len: usize) {
        let bytes = std::slice::from_raw_parts(data, len).to_vec();
        world(|world| world.payload = bytes);
    }
    fn DigestAddStringBuffer(_digest: Any, data: *const u8, len: usize) { SaveStringBuffer(ptr::null_mut(), data, len); }
    fn DigestEndSequence(_digest: Any) {}
    fn EmitAOF(_io: Any, _command: *const c_char) {}

    // Calls of the module's own. What it asks of others' commands finds none: it has ways without them.
    fn Call(_ctx: Any, command: *const c_char, _format: *const c_char) -> Any {
        match CStr::from_ptr(command).to_bytes() {
            b"PRLOCK.REVOKE" => match &called(&[b"PRLOCK.REVOKE", b""])[..] {
                [Reply::Error(text)] => string(text.as_bytes()),
                other => panic!("an empty label was taken: {other:?}"),
            },
            _ => ptr::null_mut(),
        }
    }
    fn CallReplyStringPtr(reply: Any, len: *mut usize) -> *const u8 { StringPtrLen(reply, len) }
    fn FreeCallReply(reply: Any) { free_string(reply); }

    // Replies.
    fn ReplyWithNull(_ctx: Any) -> c_int { say(Reply::Null) }
    fn ReplyWithLongLong(_ctx: Any, value: c_longlong) -> c_int { say(Reply::Int(value)) }
    fn ReplyWithStringBuffer(_ctx: Any, data: *const u8, len: usize) -> c_int {
        say(Reply::Bytes(std::slice::from_raw_parts(data, len).to_vec()))
    }
    fn ReplyWithArray(_ctx: Any, len: c_long) -> c_int { say(Reply::Array(len)) }
    fn ReplyWithMap(_ctx: Any, len: c_long) -> c_int { say(Reply::Map(len)) }
    fn ReplySetArrayLength(_ctx: Any, len: c_long) {
        world(|world| {
            let open = world.replies.iter_mut().rev().find(|reply| **reply == Reply::Array(-1));
            *open.expect("an array without a length") = Reply::Array(len);
        });
    }
    fn ReplyWithError(_ctx: Any, text: *const c_char) -> c_int {
        say(Reply::Error(CStr::from_ptr(text).to_string_lossy().into_owned()))
    }

    // Waits and timers.
    fn BlockClient(_ctx: Any, reply: CommandFn, timeout: CommandFn, free: FreeFn, _timeout_ms: c_longlong) -> Any {
        world(|world| {
            world.clients += 1;
            let id = world.clients - 1;
            let blocked = Blocked {
                id, reply, timeout, free, disconnect: None, is_connected: true, parcel: ptr::null_mut(),
            };
            let handle = Box::into_raw(Box::new(blocked));
            world.waiting.push(handle);
            handle.cast()
        })
    }
    fn SetDisconnectCallback(handle: Any, callback: unsafe extern "C" fn(Any, Any)) {
        (*handle.cast::<Blocked>()).disconnect = Some(callback);
    }
    fn UnblockClient(handle: Any, parcel: Any) -> c_int {
        let blocked = handle.cast::<Blocked>();
        assert!(world(|world| !world.given_back.contains(&blocked)), "a handle given back twice");
        (*blocked).parcel = parcel;
        world(|world| world.given_back.push_back(blocked));
        OK
    }
    fn GetBlockedClientHandle(ctx: Any) -> Any { (*ctx.cast::<Context>()).blocked.cast() }
    fn GetBlockedClientPrivateData(ctx: Any) -> Any { (*ctx.cast::<Context>()).parcel }
    fn CreateTimer(_ctx: Any, _in_ms: c_longlong, callback: TimerFn, data: Any) -> u64 {
        world(|world| {
            assert!(world.timer.is_none(), "two timers");
            world.timers += 1;
            world.timer = Some((world.timers, callback, data));
            world.timers
        })
    }
    fn StopTimer(_ctx: Any, id: u64, _data: Any) -> c_int {
        world(|world| match world.timer {
            Some((armed, ..)) if armed == id => {
                world.timer = None;
                OK
            }
            _ => ERR,
        })
    }
}

unsafe extern "C" {
    fn malloc(len: usize) -> Any;
    fn free(memory: Any);
}

/// Memory as the server hands it out, for the module to give back.
unsafe fn libc_copy(bytes: &[u8]) -> Any {
    unsafe {
        let memory = malloc(bytes.len());
        ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast::<u8>(), bytes.len());
        memory
    }
}

unsafe fn libc_free(memory: Any) {
    unsafe { free(memory) };
}
