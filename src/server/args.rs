//! A command's arguments.

use std::ffi::c_int;

use redis_module::raw::RedisModuleString;

use super::string::Str;

/// The arguments of the running command, the command's name at 0.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [*mut RedisModuleString]);

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` holds `argc` strings of the server that live as long as `'a`: the contract of a command callback.
    pub(super) unsafe fn new(argv: *mut *mut RedisModuleString, argc: c_int) -> Self {
        let len = usize::try_from(argc).unwrap_or_default();
        if argv.is_null() {
            return Self(&[]);
        }
        // SAFETY: the caller's contract.
        Self(unsafe { std::slice::from_raw_parts(argv, len) })
    }

    /// How many there are, with the command's name.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The argument at `index` as the server's string.
    pub fn str(&self, index: usize) -> Option<Str<'a>> {
        // SAFETY: a string of the vector, which lives as long as `'a`.
        self.0.get(index).map(|raw| unsafe { Str::new(*raw) })
    }

    /// The argument at `index` as bytes.
    pub fn bytes(&self, index: usize) -> Option<&'a [u8]> {
        self.str(index).map(Str::bytes)
    }
}
