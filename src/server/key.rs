//! An open key.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleKey};

use super::ctx::Ctx;
use super::string::{self, Str};
use super::value::{self, Seen};
use super::{OK, events, lock_type};
use crate::locks::lock::Lock;

/// What lies under a key's name.
pub enum Kind<'k> {
    /// Nothing, or something past its deadline.
    Free,
    Lock(Seen<'k>),
    /// A plain string: perhaps a lock made by SET NX PX.
    String,
    Other,
}

/// A key, open for writing; closed when it goes out of scope.
///
/// Opening for writing neither signals a change (the module has switched that off) nor counts as a hit or miss, and it
/// removes a key that is past its deadline where the server may do so. Where it may not (a replica, a paused server) the
/// key looks free, but must not be written: only commands, which such a server refuses, and callbacks that asked
/// `Ctx::may_write` write.
pub struct Key<'c> {
    raw: *mut RedisModuleKey,
    /// The lock that lies here, or null: asked for once, since every command looks at it more than once.
    value: *mut c_void,
    name: Str<'c>,
    ctx: PhantomData<Ctx<'c>>,
}

impl<'c> Key<'c> {
    /// See `Ctx::open`.
    pub(super) fn open(ctx: Ctx<'c>, name: Str<'c>) -> Self {
        Self::open_raw(ctx.raw(), name, true)
    }

    fn open_raw(ctx: *mut RedisModuleCtx, name: Str<'c>, touch: bool) -> Self {
        let mut mode = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int;
        if !touch {
            mode |= raw::REDISMODULE_OPEN_KEY_NOTOUCH as c_int;
        }
        // SAFETY: a live context and string; the handle is closed in `drop`, before the context ends.
        let raw = api!(RedisModule_OpenKey(ctx, name.raw(), mode)).unwrap_or(ptr::null_mut());
        Self { raw, value: Self::value_of(raw), name, ctx: PhantomData }
    }

    /// Opens a key that no command names: it does not count as use.
    pub fn look(ctx: Ctx<'c>, name: Str<'c>) -> Self {
        Self::open_raw(ctx.raw(), name, false)
    }

    /// The same for a command that only reads. To look removes what is past its deadline, but on a replica that is its
    /// primary's to do, even on one that takes writes of its own clients: there it is asked for reading first.
    pub fn read(ctx: Ctx<'c>, name: Str<'c>) -> Self {
        if events::is_replica() && ctx.flags().is_writable() && !Self::is_there(ctx, name) {
            return Self { raw: ptr::null_mut(), value: ptr::null_mut(), name, ctx: PhantomData };
        }
        Self::look(ctx, name)
    }

    fn is_there(ctx: Ctx<'_>, name: Str<'_>) -> bool {
        let mode = (raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH) as c_int;
        // SAFETY: as in `open_raw`; closed at once.
        let raw = api!(RedisModule_OpenKey(ctx.raw(), name.raw(), mode)).unwrap_or(ptr::null_mut());
        if !raw.is_null() {
            let _ = api!(RedisModule_CloseKey(raw));
        }
        !raw.is_null()
    }

    /// The key's name.
    pub fn name(&self) -> Str<'c> {
        self.name
    }

    fn value_of(raw: *mut RedisModuleKey) -> *mut c_void {
        if raw.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: an open key.
        match api!(RedisModule_ModuleTypeGetType(raw)) {
            Some(found) if !found.is_null() && lock_type::is_ours(found) => {
                // SAFETY: as above.
                api!(RedisModule_ModuleTypeGetValue(raw)).unwrap_or(ptr::null_mut())
            }
            _ => ptr::null_mut(),
        }
    }

    /// A look at the lock that lies here, if one does.
    pub fn lock(&self) -> Option<Seen<'_>> {
        // SAFETY: the value of an open key of our type is a pointer that `value::give` made. The keyspace keeps it until the
        // key is changed, which takes this `Key` as mutable, or closed. Nothing else runs meanwhile: whoever lets others
        // run (events, calls) closes the key before.
        (!self.value.is_null()).then(|| unsafe { Seen::new(self.value) })
    }

    /// What lies here.
    pub fn kind(&self) -> Kind<'_> {
        if let Some(seen) = self.lock() {
            return Kind::Lock(seen);
        }
        if self.raw.is_null() {
            return Kind::Free;
        }
        // SAFETY: an open key.
        match api!(RedisModule_KeyType(self.raw)).unwrap_or_default() as isize {
            raw::REDISMODULE_KEYTYPE_EMPTY => Kind::Free,
            raw::REDISMODULE_KEYTYPE_STRING => Kind::String,
            _ => Kind::Other,
        }
    }

    /// Whether the plain string that lies here is exactly `bytes`. Reads through the server's own GET, which leaves its
    /// encoding as it is; directly where the configuration gave GET another name or none (`rename-command`).
    pub fn string_is(&self, ctx: Ctx<'_>, bytes: &[u8]) -> bool {
        let reply = api!(RedisModule_Call(ctx.raw(), c"GET".as_ptr(), c"s".as_ptr(), self.name.raw()));
        if let Some(reply) = reply.filter(|reply| !reply.is_null()) {
            let is_same = string::of_reply(reply) == bytes;
            // SAFETY: ours, freed once.
            let _ = api!(RedisModule_FreeCallReply(reply));
            return is_same;
        }
        let mut len = 0;
        // SAFETY: an open key; the server shows `len` bytes until the key is changed.
        match api!(RedisModule_StringDMA(self.raw, &raw mut len, raw::REDISMODULE_READ as c_int)) {
            Some(data) if !data.is_null() => {
                bytes == unsafe { std::slice::from_raw_parts(data.cast::<u8>().cast_const(), len) }
            }
            _ => false,
        }
    }

    /// The deadline, Unix time in ms; `None` for none.
    pub fn expires_at_ms(&self) -> Option<i64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: an open key.
        api!(RedisModule_GetAbsExpire(self.raw)).filter(|at_ms| *at_ms >= 0)
    }

    /// Sets the deadline, Unix time in ms; `None` takes it away.
    pub fn set_expires_at_ms(&mut self, at_ms: Option<i64>) {
        const NO_EXPIRE: i64 = -1;
        // SAFETY: an open key; the server refuses an empty one.
        let _ = api!(RedisModule_SetAbsExpire(self.raw, at_ms.unwrap_or(NO_EXPIRE)));
    }

    /// Puts `lock` here in place of whatever lies here. The deadline stays that of a lock that was here, else there is
    /// none. Returns false, with nothing changed, if the server refuses.
    pub fn put(&mut self, lock: &Lock) -> bool {
        if self.raw.is_null() {
            return false;
        }
        let replaces = !self.value.is_null();
        let new = value::give(lock);
        let mut old = ptr::null_mut();
        let kind = lock_type::raw();
        let status = if replaces {
            // SAFETY: an open key of our type; the old value comes back as ours.
            api!(RedisModule_ModuleTypeReplaceValue(self.raw, kind, new, &raw mut old))
        } else {
            // SAFETY: an open key; the server takes `new` over.
            api!(RedisModule_ModuleTypeSetValue(self.raw, kind, new))
        };
        if status != Some(OK) {
            // SAFETY: the server did not take it.
            drop(unsafe { value::take(new) });
            return false;
        }
        self.value = new;
        if !old.is_null() {
            // SAFETY: the keyspace's share of the replaced lock, which it gave back.
            unsafe { value::take(old) }.set_gone();
        }
        true
    }

    /// Deletes the key. No event, no replication: the caller's task.
    pub fn delete(&mut self) {
        let value = std::mem::replace(&mut self.value, ptr::null_mut());
        lock_type::while_deleting(value, || {
            // SAFETY: an open key.
            let _ = api!(RedisModule_DeleteKey(self.raw));
        });
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: open, and closed once.
            let _ = api!(RedisModule_CloseKey(self.raw));
        }
    }
}
