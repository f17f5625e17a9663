//! The parts of a run, in their order.

mod cycle;
mod generated;
mod list;
mod memory;
mod refused;

use crate::options::Options;
use crate::report::Report;

pub struct Part {
    /// For `ONLY`.
    pub name: &'static str,
    /// For the one who waits.
    pub what: &'static str,
    pub run: fn(&Options, &mut Report),
}

pub const ALL: &[Part] = &[
    Part { name: "cycle", what: "claim, renew and release beside plain commands and Lua", run: cycle::run },
    Part { name: "generated", what: "claims with a generated token and a holder", run: generated::run },
    Part { name: "refused", what: "claims, renewals and releases that are refused", run: refused::run },
    Part { name: "memory", what: "bytes per lock, of 1,000,000", run: memory::run },
    Part { name: "list", what: "pages, holders and prefixes among 1,000,000 locks, beside SCAN", run: list::run },
];
