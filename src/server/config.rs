//! The module's settings, and the server's own that matter to locks.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use super::args::Args;
use super::log::{Level, log};
use super::{ERR, OK};
use crate::locks::number::parse_i64;

/// `prlock.max-ttl-ms` when nothing sets it: a day.
pub const MAX_TTL_MS_DEFAULT: i64 = 86_400_000;
/// The setting's name behind the module's; an argument of `loadmodule` has the same.
const MAX_TTL_MS: &CStr = c"max-ttl-ms";

static MAX_TTL_MS_NOW: AtomicI64 = AtomicI64::new(MAX_TTL_MS_DEFAULT);

/// The longest TTL that a claim or renewal may ask for, in ms; `None` for no cap.
pub fn max_ttl_ms() -> Option<i64> {
    Some(MAX_TTL_MS_NOW.load(Relaxed)).filter(|cap| *cap > 0)
}

/// The defaults that the arguments of `loadmodule` give, or what is wrong with them. Strict, since the server checks
/// nothing here: pairs of a setting's name and a value within its range.
pub(super) fn from_arguments(args: &Args<'_>) -> Result<i64, &'static str> {
    let mut max_ttl_ms = MAX_TTL_MS_DEFAULT;
    let mut index = 0;
    while let Some(name) = args.bytes(index) {
        if !name.eq_ignore_ascii_case(MAX_TTL_MS.to_bytes()) {
            return Err("prlock: unknown module argument; known is: max-ttl-ms <milliseconds>");
        }
        let value = args.bytes(index.saturating_add(1)).and_then(parse_i64);
        max_ttl_ms = value
            .filter(|ms| *ms >= 0)
            .ok_or("prlock: the module argument max-ttl-ms takes milliseconds from 0 (no cap) upwards")?;
        index = index.saturating_add(2);
    }
    Ok(max_ttl_ms)
}

/// Registers the settings and reads them from the configuration. False if the server refuses, as for a value in
/// redis.conf that is out of range.
pub(super) fn register(ctx: *mut RedisModuleCtx, max_ttl_ms: i64) -> bool {
    // SAFETY: a live context in OnLoad; the server copies the name; the callbacks take no data.
    let registered = api!(RedisModule_RegisterNumericConfig(
        ctx,
        MAX_TTL_MS.as_ptr(),
        max_ttl_ms,
        raw::REDISMODULE_CONFIG_DEFAULT,
        0,
        c_longlong::MAX,
        Some(get_max_ttl_ms),
        Some(set_max_ttl_ms),
        None,
        ptr::null_mut(),
    ));
    // SAFETY: a live context in OnLoad.
    registered == Some(OK) && api!(RedisModule_LoadConfigs(ctx)) == Some(OK)
}

unsafe extern "C" fn get_max_ttl_ms(_name: *const c_char, _data: *mut c_void) -> c_longlong {
    MAX_TTL_MS_NOW.load(Relaxed)
}

unsafe extern "C" fn set_max_ttl_ms(
    _name: *const c_char,
    value: c_longlong,
    _data: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    if value < 0 {
        return ERR;
    }
    MAX_TTL_MS_NOW.store(value, Relaxed);
    OK
}

/// Warns if the server may evict locks under memory pressure.
pub(super) fn warn_of_eviction(ctx: *mut RedisModuleCtx) {
    if may_evict(ctx) == Some(true) {
        log(
            Level::Warning,
            "prlock: maxmemory-policy lets the server evict locks that are held; use noeviction on a server that keeps locks",
        );
    }
}

/// Whether `maxmemory-policy` is one that evicts. Asked of INFO: CONFIG may have another name or none (`rename-command`).
fn may_evict(ctx: *mut RedisModuleCtx) -> Option<bool> {
    // SAFETY: a live context; the data is ours to free.
    let data = api!(RedisModule_GetServerInfo(ctx, c"memory".as_ptr())).filter(|data| !data.is_null())?;
    // SAFETY: live data; the value lives as long as it does.
    let policy = api!(RedisModule_ServerInfoGetFieldC(data, c"maxmemory_policy".as_ptr()));
    let evicts =
        policy.filter(|policy| !policy.is_null()).map(|policy| unsafe { CStr::from_ptr(policy) } != c"noeviction");
    // SAFETY: ours, freed once.
    let _ = api!(RedisModule_FreeServerInfo(ctx, data));
    evicts
}
