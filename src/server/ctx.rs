//! The context of a callback: replies, replication, events, and what the server says about itself.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use redis_module::raw::{self, RedisModuleCallReply, RedisModuleCtx};

use super::args::Args;
use super::key::Key;
use super::string::{self, OwnedStr, Str};
use super::{OK, clock, events, stream};
use crate::commands::error::CommandError;
use crate::commands::{INFO, REVOKE};
use crate::locks::{Bytes, codec};

/// How long the server's word holds that it takes writes, in ms.
const ASK_AGAIN_MS: i64 = 10;

/// Until when it holds, monotonic ms.
static TAKES_WRITES_UNTIL_MS: AtomicI64 = AtomicI64::new(0);

/// The server has just shown that it takes writes.
pub(super) fn note_takes_writes() {
    TAKES_WRITES_UNTIL_MS.store(clock::monotonic_ms().saturating_add(ASK_AGAIN_MS), Relaxed);
}

/// What the server says about itself and the caller; see the predicates.
#[derive(Clone, Copy)]
pub struct Flags(u32);

impl Flags {
    /// Not a replica.
    pub fn is_primary(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_MASTER != 0
    }

    /// Takes writes of its own clients: a primary, or a replica with `replica-read-only no`.
    pub fn is_writable(self) -> bool {
        self.is_primary() || self.0 & raw::REDISMODULE_CTX_FLAGS_READONLY == 0
    }

    /// Reading an RDB or AOF.
    pub fn is_loading(self) -> bool {
        self.0 & (raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING) != 0
    }

    /// The running command comes from the primary.
    pub fn is_replicated(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_REPLICATED != 0
    }

    /// The append-only file is on, or being made.
    pub fn has_aof(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_AOF != 0
    }

    /// A forked child saves, rewrites or synchronises.
    pub fn has_child(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD != 0
    }

    /// In Cluster mode.
    pub fn is_cluster(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    /// A script, or another module's call outside of a transaction: the client of the context is none of a connection.
    fn is_own_client(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_LUA != 0
            || self.0 & (raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING | raw::REDISMODULE_CTX_FLAGS_MULTI)
                == raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
    }

    /// No transaction and no script is running.
    pub fn is_between_commands(self) -> bool {
        self.0 & (raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA) == 0
    }

    /// A caller that cannot wait: a transaction, a script, another module, the primary, a file.
    pub fn denies_blocking(self) -> bool {
        const DENY: u32 = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
            | raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_REPLICATED;
        self.0 & DENY != 0 || self.is_loading()
    }
}

/// The context that the server gave to a callback, for as long as `'a`.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: *mut RedisModuleCtx,
    /// A command of a client is running, and not a callback of the server's own.
    is_command: bool,
    lives: PhantomData<&'a ()>,
}

impl<'a> Ctx<'a> {
    /// # Safety
    /// `raw` is a context that lives as long as `'a`.
    pub(super) const unsafe fn new(raw: *mut RedisModuleCtx) -> Self {
        Self { raw, is_command: false, lives: PhantomData }
    }

    /// # Safety
    /// The same, and it is the context of a running command.
    pub(super) const unsafe fn of_command(raw: *mut RedisModuleCtx) -> Self {
        Self { raw, is_command: true, lives: PhantomData }
    }

    /// For calls of the API.
    pub(super) const fn raw(self) -> *mut RedisModuleCtx {
        self.raw
    }

    // SAFETY of all calls below: `self.raw` is a live context, and strings are live for the call.

    /// What holds for the server and the caller at this moment.
    pub fn flags(self) -> Flags {
        Flags(api!(RedisModule_GetContextFlags(self.raw)).unwrap_or_default() as u32)
    }

    /// Whether a callback that no command caused may write now: a server that owns its data and is not loading, and
    /// whose writes are not paused (CLIENT PAUSE, FAILOVER, SHUTDOWN). A write at any other time ends the server or makes
    /// its copies differ.
    pub fn may_write(self) -> bool {
        let flags = self.flags();
        flags.is_writable() && !flags.is_loading() && !self.are_writes_paused()
    }

    /// Whether nothing new is to reach the replicas (CLIENT PAUSE, FAILOVER, SHUTDOWN). The one command that can run then
    /// and write is a later one of the very transaction that paused.
    pub fn are_writes_paused(self) -> bool {
        api!(RedisModule_AvoidReplicaTraffic()) != Some(0)
    }

    /// Whether the server leaves a key that is past its deadline where it is, though it looks free: while writes are paused,
    /// and on a replica that takes no writes. Only a transaction gets there, which is let in as a whole before it pauses the
    /// server or makes it a replica.
    pub fn keeps_lapsed(self) -> bool {
        self.are_writes_paused() || (events::is_replica() && !self.flags().is_writable())
    }

    /// Whether the server lets clients write now: enough replicas are up to date (`min-replicas-to-write`), and its disk
    /// takes what it writes (MISCONF). What the module does by itself must not go on where a client's command would be
    /// refused: a primary that was cut off would grant what its successor grants. Asked by a call that the server checks as
    /// it does a script's (`S`), and that changes nothing; its errors come as replies (`E`), since Valkey 9 ends at them else.
    /// A yes is good for some ms, since the call shows in `INFO commandstats` and MONITOR.
    pub fn takes_writes(self) -> bool {
        clock::monotonic_ms() < TAKES_WRITES_UNTIL_MS.load(Relaxed) || self.asks_to_write()
    }

    /// Asks that, whatever the last answer was. The command that is called runs `soon::within_own_call`, and what that
    /// changes is to reach the stream (`!`).
    pub(super) fn asks_to_write(self) -> bool {
        let reply = api!(RedisModule_Call(self.raw, REVOKE.as_ptr(), c"!SEc".as_ptr(), c"".as_ptr()));
        let Some(reply) = reply.filter(|reply| !reply.is_null()) else { return false };
        // The command's own refusal of an empty label: it ran.
        let ran = string::of_reply(reply) == CommandError::EmptyHolder.text().to_bytes();
        let _ = api!(RedisModule_FreeCallReply(reply));
        if ran {
            note_takes_writes();
        }
        ran
    }

    /// Whether this is the only module of the server, as far as the server says.
    pub(super) fn has_one_module(self) -> bool {
        const LINE: &[u8] = b"module:name=";
        let listed = self.call_with_word(c"MODULE", c"LIST", |reply| {
            let is_list = api!(RedisModule_CallReplyType(reply)) == Some(raw::REDISMODULE_REPLY_ARRAY as c_int);
            is_list.then(|| api!(RedisModule_CallReplyLength(reply)).unwrap_or_default())
        });
        // A configuration that has taken MODULE away (`rename-command`) leaves INFO, as a rule.
        let told = || {
            self.call_with_word(c"INFO", c"modules", |reply| {
                Some(string::of_reply(reply).windows(LINE.len()).filter(|bytes| *bytes == LINE).count())
            })
        };
        listed.or_else(told) == Some(1)
    }

    /// What `read` makes of the reply of a command with one word.
    fn call_with_word<T>(
        self,
        command: &CStr,
        word: &CStr,
        read: impl FnOnce(*mut RedisModuleCallReply) -> Option<T>,
    ) -> Option<T> {
        let reply = api!(RedisModule_Call(self.raw, command.as_ptr(), c"Ec".as_ptr(), word.as_ptr()));
        let reply = reply.filter(|reply| !reply.is_null())?;
        let made = read(reply);
        let _ = api!(RedisModule_FreeCallReply(reply));
        made
    }

    /// The same context as a callback's, which writes every change into the stream.
    pub(super) const fn of_callback(self) -> Self {
        Self { is_command: false, ..self }
    }

    /// The selected database.
    pub fn db(self) -> i32 {
        api!(RedisModule_GetSelectedDb(self.raw)).unwrap_or_default()
    }

    /// Goes to another database. False if there is none of this number.
    pub fn select(self, db: i32) -> bool {
        api!(RedisModule_SelectDb(self.raw, db)) == Some(OK)
    }

    /// The server's id of the connection; 0 where there is none.
    pub fn client_id(self) -> u64 {
        api!(RedisModule_GetClientId(self.raw)).unwrap_or_default()
    }

    /// The server's id of the connection, if the caller is one. A script and a call by another module have a client of
    /// their own, which never closes.
    pub fn connection_id(self) -> Option<u64> {
        let id = self.client_id();
        // SAFETY: null asks for nothing but whether it is there.
        let is_open = api!(RedisModule_GetClientInfoById(std::ptr::null_mut(), id)) == Some(OK);
        (is_open && !self.flags().is_own_client() && self.has_user(id)).then_some(id)
    }

    /// Whether a client has a user, as every connection has. Valkey 9 finds the clients of other modules' calls by their
    /// ids as well, and if such a call could wait (`K`), no flag tells it from a connection's.
    fn has_user(self, id: u64) -> bool {
        // SAFETY: the name is ours to free.
        let name = api!(RedisModule_GetClientUserNameById(self.raw, id)).filter(|name| !name.is_null());
        name.map(|name| unsafe { OwnedStr::from_raw(name) }).is_some()
    }

    /// The connection's name (CLIENT SETNAME), if it has one.
    pub fn client_name(self) -> Option<OwnedStr> {
        let name = api!(RedisModule_GetClientNameById(self.raw, self.client_id()))?;
        if name.is_null() {
            return None;
        }
        // SAFETY: the server took a reference for us, and the module has no automatic memory that would give it back.
        Some(unsafe { OwnedStr::from_raw(name) })
    }

    /// Opens the key of a command that may change it, which counts as use (LRU, LFU).
    pub fn open(self, name: Str<'a>) -> Key<'a> {
        Key::open(self, name)
    }

    /// Keeps an argument out of SLOWLOG and MONITOR. Read it before: on Valkey 8.1 the vector behind `Args` is the one that
    /// is shown, so that the argument reads as its stand-in afterwards. What was read stays, since the client keeps it.
    pub fn redact(self, index: usize) {
        let _ = api!(RedisModule_RedactClientCommandArgument(self.raw, index as c_int));
    }

    /// Keeps all arguments from `first` on out of SLOWLOG and MONITOR: for a malformed call, in which the token may stand
    /// anywhere.
    pub fn redact_from(self, first: usize, args: Args<'_>) {
        (first..args.len()).for_each(|index| self.redact(index));
    }

    /// Replies null, as the client's protocol has it.
    pub fn reply_null(self) {
        let _ = api!(RedisModule_ReplyWithNull(self.raw));
    }

    /// Replies an integer.
    pub fn reply_integer(self, value: i64) {
        let _ = api!(RedisModule_ReplyWithLongLong(self.raw, value));
    }

    /// Replies any bytes.
    pub fn reply_bulk(self, bytes: &[u8]) {
        let _ = api!(RedisModule_ReplyWithStringBuffer(self.raw, bytes.as_ptr().cast::<c_char>(), bytes.len()));
    }

    /// Announces an array of `len` elements, which follow.
    pub fn reply_array(self, len: usize) {
        let _ = api!(RedisModule_ReplyWithArray(self.raw, len as c_long));
    }

    /// Announces an array whose length `reply_array_length` tells when its elements are written.
    pub fn reply_array_postponed(self) {
        let _ = api!(RedisModule_ReplyWithArray(self.raw, c_long::from(raw::REDISMODULE_POSTPONED_LEN)));
    }

    /// Tells the length of the array that was announced without one.
    pub fn reply_array_length(self, len: usize) {
        let _ = api!(RedisModule_ReplySetArrayLength(self.raw, len as c_long));
    }

    /// Announces a map of `len` pairs, flat in RESP2.
    pub fn reply_map(self, len: usize) {
        let _ = api!(RedisModule_ReplyWithMap(self.raw, len as c_long));
    }

    /// An error; its text starts with its code.
    pub fn reply_error(self, text: &CStr) {
        let _ = api!(RedisModule_ReplyWithError(self.raw, text.as_ptr()));
    }

    /// Counts a change without writing it into the stream, if nobody can need it there; see `stream.rs`. Else false.
    fn only_counts(self) -> bool {
        if !self.is_command || stream::is_needed() {
            return false;
        }
        // Sends to whoever listens, which is nobody, and marks the data set dirty.
        self.replicate_verbatim();
        true
    }

    /// Sends a lock's state, made by `bytes` if anybody can need it, to the replicas and the AOF; see `locks/codec.rs`.
    /// Marks the data set dirty.
    pub fn replicate_lock(self, key: Str<'_>, bytes: impl FnOnce() -> Bytes) {
        if self.only_counts() {
            return;
        }
        let bytes = bytes();
        self.replicate_state(key, &bytes);
    }

    /// Sends what `locks/codec.rs` says, by the module's own command.
    fn replicate_state(self, key: Str<'_>, bytes: &[u8]) {
        let status = api!(RedisModule_Replicate(
            self.raw,
            crate::commands::APPLY.as_ptr(),
            c"sb".as_ptr(),
            key.raw(),
            bytes.as_ptr(),
            bytes.len(),
        ));
        debug_assert_eq!(status, Some(OK));
    }

    /// Sends a deletion.
    pub fn replicate_delete(self, key: Str<'_>) {
        if self.only_counts() {
            return;
        }
        // Refused if the configuration gave DEL another name or none (`rename-command`).
        if api!(RedisModule_Replicate(self.raw, c"DEL".as_ptr(), c"s".as_ptr(), key.raw())) != Some(OK) {
            self.replicate_state(key, &codec::gone());
        }
    }

    /// Sends a new deadline, Unix time in ms.
    pub fn replicate_deadline(self, key: Str<'_>, at_ms: i64) {
        // Refused as in `replicate_delete`.
        if api!(RedisModule_Replicate(self.raw, c"PEXPIREAT".as_ptr(), c"sl".as_ptr(), key.raw(), at_ms)) != Some(OK) {
            self.replicate_state(key, &codec::deadline(at_ms));
        }
    }

    /// Sends the running command as it is.
    pub fn replicate_verbatim(self) {
        let _ = api!(RedisModule_ReplicateVerbatim(self.raw));
    }

    /// An event of the module class.
    pub fn notify(self, event: &CStr, key: Str<'_>) {
        let _ =
            api!(RedisModule_NotifyKeyspaceEvent(self.raw, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.raw()));
    }

    /// An event of the generic class.
    pub fn notify_generic(self, event: &CStr, key: Str<'_>) {
        let _ =
            api!(RedisModule_NotifyKeyspaceEvent(self.raw, raw::REDISMODULE_NOTIFY_GENERIC, event.as_ptr(), key.raw()));
    }

    /// Has the server delete a key that looks free, together with what may still lie there past its deadline. False if the
    /// configuration left no command for that (`rename-command`).
    pub fn delete_lapsed(self, key: Str<'_>) -> bool {
        [c"DEL", c"UNLINK"].into_iter().any(|command| {
            let reply = api!(RedisModule_Call(self.raw, command.as_ptr(), c"!sE".as_ptr(), key.raw()));
            let Some(reply) = reply.filter(|reply| !reply.is_null()) else { return false };
            let ran = api!(RedisModule_CallReplyType(reply)) == Some(raw::REDISMODULE_REPLY_INTEGER as c_int);
            let _ = api!(RedisModule_FreeCallReply(reply));
            ran
        })
    }

    /// Tells WATCH and client tracking that a key changed.
    pub fn signal_modified(self, key: Str<'_>) {
        let _ = api!(RedisModule_SignalModifiedKey(self.raw, key.raw()));
    }

    /// Whether this node may serve `key` now. Without Cluster always; else asked of the server, which answers a harmless
    /// command on a key of another node, of a migrating slot or of a cluster that is down with an error.
    pub fn serves(self, key: Str<'_>) -> bool {
        if !self.flags().is_cluster() {
            return true;
        }
        // The second has a name that no configuration can take away (`rename-command`).
        [c"PTTL", INFO].into_iter().any(|command| self.answers(command, key))
    }

    /// Whether a harmless command on this key runs. That it finds another type, it finds out by running.
    fn answers(self, command: &CStr, key: Str<'_>) -> bool {
        let reply = api!(RedisModule_Call(self.raw, command.as_ptr(), c"sE".as_ptr(), key.raw()));
        let Some(reply) = reply.filter(|reply| !reply.is_null()) else { return false };
        let kind = api!(RedisModule_CallReplyType(reply)).unwrap_or(raw::REDISMODULE_REPLY_ERROR as c_int);
        let runs = kind != raw::REDISMODULE_REPLY_ERROR as c_int || string::of_reply(reply).starts_with(b"WRONGTYPE");
        let _ = api!(RedisModule_FreeCallReply(reply));
        runs
    }
}
