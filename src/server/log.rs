//! Lines in the server's log.

use std::ffi::{CStr, c_int};
use std::ptr;

/// How loud a line is; the server's own words.
#[derive(Clone, Copy)]
pub enum Level {
    Warning,
}

/// Writes one line. `text` may hold any bytes: it is an argument of the format, never the format itself. No token may be
/// part of it.
pub fn log(level: Level, text: &str) {
    let level: &CStr = match level {
        Level::Warning => c"warning",
    };
    let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
    // SAFETY: the format takes an int and a pointer to at least that many bytes; a null context is allowed.
    let _ = api!(RedisModule_Log(ptr::null_mut(), level.as_ptr(), c"%.*s".as_ptr(), len, text.as_ptr()));
}
