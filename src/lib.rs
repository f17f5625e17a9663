//! Locks as native commands of Redis and Valkey: claimed, renewed, listed and released atomically, inside the server.
//!
//! Three rooms and a passage:
//! - [`locks`]: the rules, as plain data; nothing in it calls the server.
//! - [`server`]: the only unsafe code, a thin safe face of the module API.
//! - [`changes`]: every change of a lock, each with all that belongs to it: value, deadline, registry, replication, events.
//! - [`commands`]: one file for each command, and the table that they are registered and documented from.
//!
//! The server enters at `server/load.rs`.

#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "nobody links this library: its documentation is for those who change it, private items and all"
)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::arithmetic_side_effects
    )
)]

mod changes;
mod commands;
mod locks;
#[allow(unsafe_code, reason = "the module API is C; this room is the only one that speaks to it")]
mod server;

// Memory comes from the server and counts into its used_memory. Tests of the rules run without a server.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
