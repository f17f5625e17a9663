//! How the module is loaded, in this order, so that a refusal at any step leaves nothing behind: name, arguments, needed
//! functions, options, type, commands, settings, INFO, and the subscriptions last.

use std::ffi::c_int;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use super::args::Args;
use super::log::{Level, log};
use super::{ERR, OK, config, events, imports, info, lock_type, register, stream, timer};
use crate::commands::COMMANDS;

/// The module's version as the server prints it: 1.2.3 is 10203.
const VERSION: c_int = 100;
const API_VERSION: c_int = 1;
/// What Redis 7.0.0 to 7.0.2 lack.
const NO_NAMES: &str = "prlock: this server does not tell the names of connections, as Redis does from 7.0.3 on: \
     a claim without HOLDER has no holder";

/// What the server calls when it loads the module.
///
/// # Safety
/// The server's contract: a live context, and `argc` arguments at `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: fills the table of functions; refuses a module of this name that is loaded already.
    if unsafe { raw::Export_RedisModule_Init(ctx, c"prlock".as_ptr(), VERSION, API_VERSION) } as c_int != OK {
        return ERR;
    }
    // SAFETY: the arguments of this call.
    match load(ctx, &unsafe { Args::new(argv, argc) }) {
        Ok(()) => OK,
        Err(why) => {
            timer::stop();
            log(Level::Warning, why);
            ERR
        }
    }
}

fn load(ctx: *mut RedisModuleCtx, args: &Args<'_>) -> Result<(), &'static str> {
    let ensure = |done: bool, why| if done { Ok(()) } else { Err(why) };
    ensure(has_api(), "prlock: this server is too old; Redis 7.0, Valkey 8.1 or later is needed")?;
    let max_ttl_ms = config::from_arguments(args)?;
    // SAFETY: the table was just filled, by this thread.
    if unsafe { raw::RedisModule_GetClientNameById }.is_none() {
        log(Level::Warning, NO_NAMES);
    }
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | imports::option();
    // SAFETY: a live context in OnLoad. All options in one call: each call replaces the last one's.
    let _ = api!(RedisModule_SetModuleOptions(ctx, options as c_int));
    timer::start(ctx);
    ensure(lock_type::create(ctx), "prlock: the server refused the data type")?;
    register::add_acl_category(ctx);
    for command in COMMANDS {
        ensure(register::register(ctx, command), "prlock: the server refused a command")?;
    }
    ensure(config::register(ctx, max_ttl_ms), "prlock: the server refused a setting; is prlock.max-ttl-ms in range?")?;
    ensure(info::register(ctx), "prlock: the server refused the INFO section")?;
    ensure(events::subscribe(ctx), "prlock: the server refused a subscription")?;
    config::warn_of_eviction(ctx);
    stream::look(ctx);
    Ok(())
}

/// Whether the server has every function that the module cannot do without.
fn has_api() -> bool {
    macro_rules! all {
        ($($name:ident),* $(,)?) => {
            // SAFETY: the table was just filled, by this thread.
            $((unsafe { raw::$name }).is_some())&&*
        };
    }
    all!(
        RedisModule_ACLCheckCommandPermissions,
        RedisModule_ACLCheckKeyPermissions,
        RedisModule_AvoidReplicaTraffic,
        RedisModule_BlockClient,
        RedisModule_CreateDataType,
        RedisModule_CreateTimer,
        RedisModule_EmitAOF,
        RedisModule_GetAbsExpire,
        RedisModule_GetBlockedClientHandle,
        RedisModule_GetDbIdFromIO,
        RedisModule_GetDbIdFromOptCtx,
        RedisModule_GetDetachedThreadSafeContext,
        RedisModule_GetKeyNameFromOptCtx,
        RedisModule_LoadConfigs,
        RedisModule_ModuleTypeReplaceValue,
        RedisModule_RedactClientCommandArgument,
        RedisModule_RegisterNumericConfig,
        RedisModule_Replicate,
        RedisModule_ReplyWithMap,
        RedisModule_SetAbsExpire,
        RedisModule_SetCommandInfo,
        RedisModule_SetDisconnectCallback,
        RedisModule_SignalModifiedKey,
        RedisModule_SubscribeToServerEvent,
    )
}
