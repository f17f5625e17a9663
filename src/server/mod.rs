//! The only room with `unsafe`: a thin safe face of the server's module API.
//!
//! Invariants:
//! - The API is called inside a callback that the server makes, and there is one at a time: on the main thread, or on a
//!   thread of another module that holds the server's lock meanwhile. Two things may run beside it, and of the API they
//!   use the allocator alone: freeing a value (`lock_type::free`), and dropping what a large flush has left of the registry
//!   (`events.rs`).
//! - A function that the server lacks is a null pointer. Those that the module cannot do without are checked once, at
//!   load (`load.rs`); a missing one elsewhere means "not done", never a crash.
//! - No text from outside is a format string (`log.rs`).

/// Calls a function of the module API: `Some(result)`, or `None` where the server has no such function.
macro_rules! api {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // Copied out first: the table is written once, at load, before any other callback runs.
        let function = unsafe { redis_module::raw::$name };
        match function {
            // SAFETY: the arguments' contract is stated where the call stands.
            Some(function) => Some(unsafe { function($($arg),*) }),
            None => None,
        }
    }};
}

pub mod acl;
pub mod args;
pub mod blocking;
pub mod clock;
pub mod config;
pub mod ctx;
pub mod events;
pub mod imports;
pub mod info;
pub mod key;
pub mod load;
pub mod lock_type;
pub mod log;
pub mod main_thread;
pub mod passing;
pub mod register;
pub mod scan;
pub mod soon;
pub mod stream;
pub mod string;
pub mod timer;
pub mod value;

/// What most functions of the API return for success (`REDISMODULE_OK`).
pub(crate) const OK: std::ffi::c_int = 0;
/// And for refusal (`REDISMODULE_ERR`).
pub(crate) const ERR: std::ffi::c_int = 1;
