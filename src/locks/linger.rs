//! LINGER: which lock goes with which connection.
//!
//! A lock that lingers is bound to the connection that last claimed or renewed it. When that connection closes, its locks
//! are found at a cost that grows with their number only.

use std::collections::{HashMap, HashSet};

use super::lock::Lock;
use super::registry::Registry;

/// The connection and the place of one lock that lingers.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The server's id of the connection.
    pub client_id: u64,
    /// The database where the lock was when it was bound.
    pub db: i32,
    /// The lock as it was when it was bound; its key says where to look.
    pub lock: Lock,
}

/// All bindings. A fence names its lock, whatever becomes of the key's name. Another lock can have it only where a payload
/// was restored beside the lock that it was made of; what happens to that one leaves the binding alone.
#[derive(Debug, Default)]
pub struct Bindings {
    by_fence: HashMap<u64, Binding>,
    by_client: HashMap<u64, HashSet<u64>>,
    /// When so many are bound, those whose lock is gone are forgotten.
    limit: usize,
}

/// Bindings below which nothing is forgotten early.
const LIMIT_MIN: usize = 64;

impl Bindings {
    /// Binds a lock, and takes it off the connection that it was bound to.
    pub fn bind(&mut self, client_id: u64, db: i32, lock: &Lock) {
        self.unbind(lock.fence());
        if self.by_fence.len() >= self.limit.max(LIMIT_MIN) {
            self.forget_gone();
            self.limit = self.by_fence.len().saturating_mul(2);
        }
        self.by_fence.insert(lock.fence(), Binding { client_id, db, lock: lock.clone() });
        self.by_client.entry(client_id).or_default().insert(lock.fence());
    }

    /// Takes a lock off its connection, if it is bound.
    pub fn unbind(&mut self, fence: u64) {
        let Some(binding) = self.by_fence.remove(&fence) else { return };
        if let Some(fences) = self.by_client.get_mut(&binding.client_id) {
            fences.remove(&fence);
            if fences.is_empty() {
                self.by_client.remove(&binding.client_id);
            }
        }
        if self.by_fence.is_empty() {
            *self = Self::default();
        }
    }

    /// Takes this lock off its connection, if it is bound.
    pub fn release(&mut self, lock: &Lock) {
        if self.by_fence.get(&lock.fence()).is_some_and(|binding| binding.lock.is(lock)) {
            self.unbind(lock.fence());
        }
    }

    /// The lock `old` lies as `lock` under another name or in another database now.
    pub fn moved(&mut self, db: i32, old: &Lock, lock: &Lock) {
        if let Some(binding) = self.by_fence.get_mut(&lock.fence()).filter(|binding| binding.lock.is(old)) {
            binding.db = db;
            binding.lock = lock.clone();
        }
    }

    /// The connection is closed: the fences of its locks, which stay bound to it until somebody has seen to each.
    pub fn close(&mut self, client_id: u64) -> Vec<u64> {
        self.by_client.remove(&client_id).map(|fences| fences.into_iter().collect()).unwrap_or_default()
    }

    /// The binding of a lock, if it is still to this connection.
    pub fn get(&self, fence: u64, client_id: u64) -> Option<&Binding> {
        self.by_fence.get(&fence).filter(|binding| binding.client_id == client_id)
    }

    /// Every lock of `db` is gone, but for those that had left it under another name; of all databases, if `db` is -1.
    pub fn clear(&mut self, db: i32) {
        let is_gone = |binding: &Binding| db < 0 || (binding.db == db && !Registry::is_at_large(&binding.lock));
        let gone: Vec<u64> =
            self.by_fence.iter().filter(|(_, binding)| is_gone(binding)).map(|(fence, _)| *fence).collect();
        for fence in gone {
            self.unbind(fence);
        }
    }

    /// SWAPDB.
    pub fn swap(&mut self, a: i32, b: i32) {
        for binding in self.by_fence.values_mut() {
            if binding.db == a {
                binding.db = b;
            } else if binding.db == b {
                binding.db = a;
            }
        }
    }

    /// Locks that went without their holder's doing (expiry, DEL) leave their binding behind for a while.
    fn forget_gone(&mut self) {
        let gone: Vec<u64> =
            self.by_fence.iter().filter(|(_, binding)| binding.lock.is_gone()).map(|(fence, _)| *fence).collect();
        for fence in gone {
            self.unbind(fence);
        }
    }

    /// How many locks are bound.
    pub fn len(&self) -> usize {
        self.by_fence.values().filter(|binding| !binding.lock.is_gone()).count()
    }

    /// Whether nothing is bound: then a closing connection needs no further look.
    pub fn is_empty(&self) -> bool {
        self.by_fence.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::lock::Grant;

    /// One that is registered, as each is before it is bound.
    fn lock(fence: u64) -> Lock {
        let lock = Lock::new(
            format!("k{fence}").as_bytes(),
            &Grant {
                token: b"t",
                holder: b"",
                fence,
                claimed_at_ms: 0,
                renewed_at_ms: 0,
                renewals: 0,
                linger_ms: Some(5),
            },
        );
        lock.set_place(0);
        lock
    }

    #[test]
    fn a_binding_moves_with_the_last_claim_or_renewal() {
        let mut bindings = Bindings::default();
        let (one, two) = (lock(1), lock(2));
        bindings.bind(7, 0, &one);
        bindings.bind(7, 0, &two);
        bindings.bind(8, 0, &one);
        assert_eq!(bindings.len(), 2);
        assert_eq!(bindings.close(7), [2]);
        assert!(bindings.close(7).is_empty());
        assert!(bindings.get(2, 7).is_some() && bindings.get(1, 7).is_none());
        bindings.unbind(2);
        bindings.unbind(1);
        assert!(bindings.close(8).is_empty() && bindings.is_empty());
    }

    #[test]
    fn a_lock_bound_anew_after_the_close_is_the_new_connections() {
        let mut bindings = Bindings::default();
        let one = lock(1);
        bindings.bind(7, 0, &one);
        assert_eq!(bindings.close(7), [1]);
        bindings.bind(8, 0, &one);
        assert!(bindings.get(1, 7).is_none());
        assert_eq!(bindings.close(8), [1]);
    }

    #[test]
    fn another_lock_of_the_same_fence_leaves_the_binding_alone() {
        let mut bindings = Bindings::default();
        let (one, twin, renamed) = (lock(1), lock(1), lock(1));
        bindings.bind(7, 0, &one);
        bindings.moved(3, &twin, &renamed);
        bindings.release(&twin);
        assert!(bindings.get(1, 7).is_some_and(|binding| binding.db == 0 && binding.lock.is(&one)));
        bindings.moved(3, &one, &renamed);
        assert!(bindings.get(1, 7).is_some_and(|binding| binding.db == 3 && binding.lock.is(&renamed)));
        bindings.release(&renamed);
        assert!(bindings.is_empty());
    }

    #[test]
    fn databases_are_swapped_and_cleared() {
        let mut bindings = Bindings::default();
        bindings.bind(7, 0, &lock(1));
        bindings.bind(7, 3, &lock(2));
        bindings.bind(7, 5, &lock(3));
        bindings.swap(0, 3);
        bindings.clear(3);
        let mut left = bindings.close(7);
        left.sort_unstable();
        assert_eq!(left, [2, 3]);
        let dbs: Vec<i32> = left.iter().filter_map(|fence| Some(bindings.get(*fence, 7)?.db)).collect();
        assert_eq!(dbs, [0, 5]);
        bindings.bind(7, 0, &lock(1));
        bindings.clear(-1);
        assert!(bindings.is_empty());
    }
}
