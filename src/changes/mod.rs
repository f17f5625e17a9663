//! Every change of a lock, each with all that belongs to it, in this order: value and deadline, registry and bindings,
//! replication, WATCH and tracking, events. Commands and the timer come through here, so no change can forget a part.
//!
//! Invariants:
//! - Writes happen in a command that the server let through, or in `tick` after `Ctx::may_write` and `Ctx::takes_writes`.
//! - The state is never borrowed across a call into the server.

pub mod apply;
pub mod find;
pub mod free;
pub mod grant;
pub mod heed;
pub mod renew;
pub mod tick;
pub mod wake;

use std::ffi::CStr;

use crate::locks::Bytes;
use crate::locks::codec::{self, Change};
use crate::locks::lock::Lock;
use crate::server::ctx::Ctx;
use crate::server::key::Key;
use crate::server::main_thread::state;

/// Tells everyone of the new state of the lock under `key`: replicas and AOF, WATCH and tracking, subscribers.
fn announce(ctx: Ctx<'_>, key: Key<'_>, change: Change, expires_at_ms: Option<i64>) {
    let name = key.name();
    if let Some(lock) = key.lock() {
        ctx.replicate_lock(name, || {
            let (mut token, mut bytes) = (Bytes::new(), Bytes::new());
            lock.token_into(&mut token);
            codec::encode(change, &lock.grant(&token), expires_at_ms, &mut bytes);
            bytes
        });
    }
    // Closed before the subscribers are told, who may change it.
    drop(key);
    ctx.signal_modified(name);
    if let Some(event) = event(change) {
        ctx.notify(event, name);
    }
}

/// Binds a lock that lingers to the connection that claimed or renewed it; to nobody, if that was a script or another
/// module.
fn bind(ctx: Ctx<'_>, connection_id: Option<u64>, lock: &Lock) {
    let db = ctx.db();
    state(|state| match connection_id {
        Some(id) => state.bindings.bind(id, db, lock),
        None => state.bindings.release(lock),
    });
}

/// The keyspace event of the module class for a change.
fn event(change: Change) -> Option<&'static CStr> {
    match change {
        Change::Stored => None,
        Change::Claim => Some(c"prlock.claim"),
        Change::Renew => Some(c"prlock.renew"),
        Change::Steal => Some(c"prlock.steal"),
        Change::Linger => Some(c"prlock.linger"),
    }
}
