//! Locks of the PRLOCK module around work: [`with_lock`].

mod errors;
mod held;
mod lock;
mod options;
mod wire;

pub use errors::{Code, LockError};
pub use held::{Lock, Why};
pub use lock::{revoke, with_lock};
pub use options::Options;
