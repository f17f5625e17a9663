//! From the command table to the server: the command itself, its documentation, key specs, tips and ACL categories.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use redis_module::raw::{
    self, RedisModuleCommandArg, RedisModuleCommandInfo, RedisModuleCommandInfoVersion, RedisModuleCommandKeySpec,
    RedisModuleCtx, RedisModuleString,
};

use super::args::Args;
use super::ctx::Ctx;
use super::{ERR, OK};
use crate::commands::spec::{Arg, ArgKind, Command, KeyUse, Spec};

/// What the server calls for a command.
type Entry = unsafe extern "C" fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;

/// A command of the table: what it says about itself, and where the server enters it.
#[derive(Clone, Copy)]
pub struct Registered {
    /// Its row.
    pub spec: &'static Spec,
    entry: Entry,
}

impl Registered {
    /// The command `C`.
    pub const fn of<C: Command>() -> Self {
        Self { spec: &C::SPEC, entry: enter::<C> }
    }
}

unsafe extern "C" fn enter<C: Command>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: a command callback's context and arguments, which live during this call.
    let (ctx, args) = unsafe { (Ctx::of_command(ctx), Args::new(argv, argc)) };
    if let Err(error) = C::run(ctx, args) {
        ctx.reply_error(&error.text());
    }
    OK
}

/// Registers a command. False if the server refuses.
pub(super) fn register(ctx: *mut RedisModuleCtx, command: &Registered) -> bool {
    let spec = command.spec;
    let (first, last, step) = if spec.key.is_some() { (1, 1, 1) } else { (0, 0, 0) };
    // SAFETY: a live context in OnLoad; the server copies the strings.
    let created = api!(RedisModule_CreateCommand(
        ctx,
        spec.name.as_ptr(),
        Some(command.entry),
        spec.flags.as_ptr(),
        first,
        last,
        step
    ));
    if created != Some(OK) {
        return false;
    }
    // SAFETY: as above.
    let Some(raw) = api!(RedisModule_GetCommand(ctx, spec.name.as_ptr())).filter(|raw| !raw.is_null()) else {
        return false;
    };
    // Redis 7.0 has no ACL categories for module commands; a server that refuses one keeps the command.
    // SAFETY: a command of this module; the server copies the string.
    let _ = api!(RedisModule_SetCommandACLCategories(raw, spec.acl.as_ptr()));
    describe(raw, spec)
}

/// Adds the module's own ACL category, where the server has such a thing.
pub(super) fn add_acl_category(ctx: *mut RedisModuleCtx) {
    // SAFETY: a live context in OnLoad.
    let _ = api!(RedisModule_AddACLCategory(ctx, c"prlock".as_ptr()));
}

fn text(text: Option<&CStr>) -> *const c_char {
    text.map_or(ptr::null(), CStr::as_ptr)
}

/// An array of arguments that ends with a zero element, and everything below it, for as long as the server reads it.
fn arguments(args: &[Arg], kept: &mut Vec<Box<[RedisModuleCommandArg]>>) -> *mut RedisModuleCommandArg {
    let mut list: Vec<RedisModuleCommandArg> = Vec::with_capacity(args.len().saturating_add(1));
    for arg in args {
        let (kind, subargs) = match arg.kind {
            ArgKind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, ptr::null_mut()),
            ArgKind::String => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, ptr::null_mut()),
            ArgKind::Integer => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, ptr::null_mut()),
            ArgKind::Pattern => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN, ptr::null_mut()),
            ArgKind::Word => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, ptr::null_mut()),
            ArgKind::OneOf(choices) => {
                (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, arguments(choices, kept))
            }
        };
        list.push(RedisModuleCommandArg {
            name: arg.name.as_ptr(),
            type_: kind,
            key_spec_index: if matches!(arg.kind, ArgKind::Key) { 0 } else { -1 },
            token: text(arg.token),
            summary: text(arg.about),
            since: ptr::null(),
            flags: if arg.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int } else { 0 },
            deprecated_since: ptr::null(),
            subargs,
            display_text: ptr::null(),
        });
    }
    // SAFETY: a plain C structure, for which all zeros is the end of a list.
    list.push(unsafe { std::mem::zeroed() });
    let mut list = list.into_boxed_slice();
    let start = list.as_mut_ptr();
    kept.push(list);
    start
}

fn describe(command: *mut raw::RedisModuleCommand, spec: &Spec) -> bool {
    let version = RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<RedisModuleCommandArg>(),
    };
    // SAFETY: plain C structures, for which all zeros means nothing said.
    let mut key_specs: [RedisModuleCommandKeySpec; 2] = unsafe { std::mem::zeroed() };
    if let (Some(key), [first, _]) = (spec.key, &mut key_specs) {
        first.flags = u64::from(match key {
            KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            KeyUse::Update => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
            }
            KeyUse::Delete => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
            }
        });
        first.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        first.bs.index = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 };
        first.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        first.fk.range =
            raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
    }
    let mut kept = Vec::new();
    let info = RedisModuleCommandInfo {
        version: &raw const version,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: spec.since.as_ptr(),
        history: ptr::null_mut(),
        tips: text(spec.tips),
        arity: spec.arity,
        key_specs: if spec.key.is_some() { key_specs.as_mut_ptr() } else { ptr::null_mut() },
        args: arguments(spec.args, &mut kept),
    };
    // SAFETY: a command of this module that was not described before; everything that `info` points to lives until the
    // end of this function, and the server copies it.
    let described = api!(RedisModule_SetCommandInfo(command, &raw const info)).unwrap_or(ERR);
    drop(kept);
    described == OK
}
