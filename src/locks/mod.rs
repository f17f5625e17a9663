//! The rules of locks, as plain data and functions.
//!
//! Invariant: nothing here calls the server, reads a clock or blocks, so that every rule is tested without a server and
//! with a clock that the test moves.

pub mod bulk_sort;
pub mod codec;
pub mod fence;
pub mod glob;
pub mod holders;
pub mod linger;
pub mod lock;
pub mod names;
pub mod number;
pub mod outcome;
pub mod queue;
pub mod registry;
pub mod shelves;
pub mod state;
pub mod stats;
pub mod stored;
pub mod token;

/// Bytes that are put together for one call: a lock's parts, its stored form, a token. They rarely leave the stack.
pub type Bytes = smallvec::SmallVec<[u8; 256]>;
