//! Slots that Valkey 9 is moving here in one step (CLUSTER MIGRATESLOTS): their keys are in the keyspace already, but
//! until the slot is this node's they are the other node's copies. The server shows them in no listing of its own, and
//! neither does the module, nor does it free them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::LazyLock;

use redis_module::raw::{RedisModuleCtx, RedisModuleEvent};

use super::OK;
use super::main_thread::state;
use super::string::Str;

/// Valkey's bit for a module whose data can move with a slot in one step. Without it such a migration is refused for the
/// whole server. On Redis the bit means nothing yet, and may mean something else later.
const OPTION: u32 = 1 << 5;
/// Valkey's event, which is another one on Redis. Older Valkeys refuse the subscription.
const EVENT: u64 = 19;
const STARTED: u64 = 0;
const ABORTED: u64 = 2;
const COMPLETED: u64 = 4;
/// A job's name is a node's id and a NUL.
const JOB_NAME_LEN: usize = 41;
const SLOTS: c_int = 16_384;

/// First and last slot of a range, as Valkey lays it out.
#[repr(C)]
struct SlotRange {
    first: c_int,
    last: c_int,
}

/// The event's data, as Valkey lays it out.
#[repr(C)]
struct Info {
    version: u64,
    job_name: [c_char; JOB_NAME_LEN],
    ranges: *const SlotRange,
    ranges_len: u32,
}

/// The module's option, where the server knows it.
pub(super) fn option() -> u32 {
    if is_valkey() { OPTION } else { 0 }
}

/// The server is a Valkey: it has every function under a name of its own too.
static IS_VALKEY: LazyLock<bool> = LazyLock::new(|| {
    let mut function = ptr::null_mut::<c_void>();
    let name = c"ValkeyModule_SetModuleOptions";
    // SAFETY: the server writes a pointer there, if it knows the name.
    api!(RedisModule_GetApi(name.as_ptr(), (&raw mut function).cast::<c_void>())) == Some(OK)
});

/// Whether the server is a Valkey.
pub(super) fn is_valkey() -> bool {
    *IS_VALKEY
}

/// Subscribes to the event, where there is one.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) {
    if is_valkey() {
        let event = RedisModuleEvent { id: EVENT, dataver: 1 };
        // SAFETY: a live context in OnLoad; the callback is a function of this module, which is never unloaded.
        let _ = api!(RedisModule_SubscribeToServerEvent(ctx, event, Some(migration)));
    }
}

unsafe extern "C" fn migration(_ctx: *mut RedisModuleCtx, _event: RedisModuleEvent, when: u64, data: *mut c_void) {
    if ![STARTED, ABORTED, COMPLETED].contains(&when) {
        return;
    }
    // SAFETY: this event's data is of this type, with that many ranges.
    let Some(info) = (unsafe { data.cast::<Info>().as_ref() }) else { return };
    if info.version != 1 || info.ranges.is_null() {
        return;
    }
    let ranges = unsafe { std::slice::from_raw_parts(info.ranges, info.ranges_len as usize) };
    for slot in ranges.iter().flat_map(|range| range.first.max(0)..=range.last.min(SLOTS)) {
        let slot = slot.unsigned_abs();
        state(|state| {
            if when == STARTED {
                state.importing.insert(slot);
            } else {
                state.importing.remove(&slot);
            }
        });
    }
}

/// Whether the key is in a slot that is being moved here in one step.
pub fn is_importing(key: Str<'_>) -> bool {
    if state(|state| state.importing.is_empty()) {
        return false;
    }
    // SAFETY: a live string.
    let slot = api!(RedisModule_ClusterKeySlot(key.raw()));
    slot.is_some_and(|slot| state(|state| state.importing.contains(&slot)))
}
