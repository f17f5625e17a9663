//! The parts of a run, in their order.

mod bystander;
mod cycle;
mod generated;
mod grant;
pub mod growth;
mod handover;
mod instructions;
mod list;
mod memory;
mod refused;
mod start;
pub mod waiters;

use crate::bench::Bench;

pub struct Part {
    /// For `ONLY`.
    pub name: &'static str,
    /// For the one who waits.
    pub what: &'static str,
    pub run: fn(&mut Bench),
}

/// The part that runs only when it is asked for.
pub const INSTRUCTIONS: &str = "instructions";

pub const ALL: &[Part] = &[
    Part { name: "cycle", what: "claim, renew, release beside plain commands and Lua", run: cycle::run },
    Part { name: "generated", what: "claims with a generated token and a holder", run: generated::run },
    Part { name: "refused", what: "claims, renewals and releases that are refused", run: refused::run },
    Part { name: "handover", what: "16 workers on one key, beside polling and publish/subscribe", run: handover::run },
    Part { name: "grant", what: "from a release to the next one's grant, beside a PING", run: grant::run },
    Part { name: "waiters", what: "a release with 10,000 waiters on the key", run: waiters::run },
    Part { name: "bystander", what: "GET and SET of another application while somebody waits", run: bystander::run },
    Part { name: "list", what: "pages, holders and prefixes among 1,000,000 locks, beside SCAN", run: list::run },
    Part { name: "growth", what: "from 10,000 locks to 1,000,000", run: growth::run },
    Part { name: "memory", what: "bytes per lock, of 1,000,000", run: memory::run },
    Part { name: "start", what: "loading 1,000,000 locks, and GET and SET beside them", run: start::run },
    Part { name: INSTRUCTIONS, what: "instructions, counted by callgrind", run: instructions::run },
];
