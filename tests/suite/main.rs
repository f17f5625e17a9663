//! The suite against real servers: one file for each facet, and the harness that owns the servers.

mod claim;
mod harness;
mod support;
