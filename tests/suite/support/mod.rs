//! The harness: real server processes, and clients to look at them from every side.
//!
//! A test starts what it needs with [`Server::start`] or [`Server::builder`], talks to it through [`Conn`], [`Raw`] and
//! [`Waiter`], and waits for conditions with [`wait_until`], never for a time. Which server runs is chosen by
//! `PRLOCK_SERVER`; see [`ServerKind`].

#![allow(dead_code, unused_imports, reason = "a toolbox: no single facet of the suite uses every tool")]

mod builder;
mod census;
mod cluster;
mod compile;
mod conn;
mod dump;
mod folder;
mod info;
mod kind;
mod locks;
mod memcheck;
mod ports;
mod random;
mod raw;
mod replica;
mod resp;
mod server;
mod stream;
mod subscriber;
mod values;
mod wait;
mod waiter;
mod waiting;

pub use builder::{Builder, StartFailure, module_path};
pub use census::{LOCK_TYPE, lock_info};
pub use cluster::{Cluster, slot_owner};
pub use compile::{compile_c, compile_c_program};
pub use conn::Conn;
pub use dump::{Dumper, ENCODINGS, LAST_ENCODING, Stored, crc64};
pub use info::{find as find_info, info_number_on};
pub use kind::{ServerKind, server_kind};
pub use locks::{Grant, Witness, cmd, event_line, grant, pipeline};
pub use memcheck::{slowed_ms, slowed_share, stretched};
pub use random::{SeededRng, seeded_rng};
pub use raw::{Raw, pack};
pub use redis::Value;
pub use replica::wait_for_offset_equal;
pub use server::Server;
pub use stream::{Command, NOISE, ReplicationStream};
pub use subscriber::{Event, Subscriber};
pub use values::{bytes, int, items, map, text};
pub use wait::{PATIENCE, wait_until};
pub use waiter::Waiter;
pub use waiting::Footprint;
