//! The suite against real servers: one file for each facet, and the harness that owns the servers.

mod announcements;
mod bytes;
mod claim;
mod clock;
mod docs;
mod effects;
mod errors;
mod first_listener;
mod fuzz_args;
mod golden;
mod harness;
mod holder;
mod hooks;
mod other_module;
mod pages;
mod payloads;
mod permissions;
mod redaction;
mod revoke;
mod settings;
mod short_reads;
mod support;
mod tools;
mod trouble;
mod waiting;
mod waiting_races;
