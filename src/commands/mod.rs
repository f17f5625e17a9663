//! The commands. Every file has the same order: grammar, arguments, what it does, reply.

pub mod apply;
pub mod claim;
pub mod error;
pub mod info;
pub mod list;
pub mod options;
#[cfg(test)]
mod pages;
pub mod release;
pub mod renew;
pub mod revoke;
pub mod spec;

use std::ffi::CStr;

use crate::server::register::Registered;

/// The command by which replicas and the AOF get a lock's state; see `apply.rs`.
pub const APPLY: &CStr = c"PRLOCK.APPLY";

/// The command that waits.
pub const CLAIM: &CStr = c"PRLOCK.CLAIM";

/// The module's own reading command of one key.
pub const INFO: &CStr = c"PRLOCK.INFO";

/// The module's own writing command without a key.
pub const REVOKE: &CStr = c"PRLOCK.REVOKE";

/// Every command, in the order in which the documentation shows them.
pub const COMMANDS: &[Registered] = &[
    Registered::of::<claim::Claim>(),
    Registered::of::<renew::Renew>(),
    Registered::of::<release::Release>(),
    Registered::of::<info::Info>(),
    Registered::of::<list::List>(),
    Registered::of::<revoke::Revoke>(),
    Registered::of::<apply::Apply>(),
];
