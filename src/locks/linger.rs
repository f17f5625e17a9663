//! LINGER: which lock goes with which connection.
//!
//! A lock that lingers is bound to the connection that last claimed or renewed it. When that connection closes, its locks
//! are found at a cost that grows with their number only.

use std::collections::{HashMap, HashSet};

use super::lock::Lock;
use super::outcome::swapped;
use super::registry::Registry;

/// Who a lock is bound to: a connection, by the server's id, which is never used again; or, from [`CLOSED`] on, the number
/// under which the lock of a connection that is closed waits for somebody to see to it.
type Owner = u64;

/// No connection has an id as great.
const CLOSED: Owner = 1 << 63;

/// The owner and the place of one lock that lingers.
#[derive(Debug, Clone)]
struct Binding {
    owner: Owner,
    /// The database where the lock was when it was bound.
    db: i32,
    /// The lock as it was when it was bound; its key says where to look.
    lock: Lock,
}

/// All bindings, by the lock's address: one that was restored beside the lock that its payload was made of has the same
/// fence, and is another lock. Whatever becomes of a lock's name, [`Bindings::moved`] is told.
#[derive(Debug, Default)]
pub struct Bindings {
    by_lock: HashMap<usize, Binding>,
    by_client: HashMap<u64, HashSet<usize>>,
    by_number: HashMap<Owner, usize>,
    /// The last number at [`CLOSED`] or above.
    last_closed: Owner,
    /// When so many are bound, those whose lock is gone are forgotten.
    limit: usize,
}

/// Bindings below which nothing is forgotten early.
const LIMIT_MIN: usize = 64;

/// What tells a lock from others while it is bound.
fn id_of(lock: &Lock) -> usize {
    lock.address().addr()
}

impl Bindings {
    /// Binds a lock to a connection, and takes it off the one that it was bound to.
    pub fn bind(&mut self, client_id: u64, db: i32, lock: &Lock) {
        self.release(lock);
        if self.by_lock.len() >= self.limit.max(LIMIT_MIN) {
            self.forget_gone();
            self.limit = self.by_lock.len().saturating_mul(2);
        }
        self.insert(Binding { owner: client_id, db, lock: lock.clone() });
    }

    fn insert(&mut self, binding: Binding) {
        let id = id_of(&binding.lock);
        if binding.owner < CLOSED {
            self.by_client.entry(binding.owner).or_default().insert(id);
        } else {
            self.by_number.insert(binding.owner, id);
        }
        self.by_lock.insert(id, binding);
    }

    fn remove(&mut self, id: usize) -> Option<Binding> {
        let binding = self.by_lock.remove(&id)?;
        if binding.owner >= CLOSED {
            self.by_number.remove(&binding.owner);
        } else if let Some(ids) = self.by_client.get_mut(&binding.owner) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_client.remove(&binding.owner);
            }
        }
        Some(binding)
    }

    /// Takes a lock off its connection, if it is bound.
    pub fn release(&mut self, lock: &Lock) {
        if self.remove(id_of(lock)).is_some() && self.by_lock.is_empty() {
            // The memory of many goes with them.
            *self = Self { last_closed: self.last_closed, ..Self::default() };
        }
    }

    /// The lock `old` lies as `lock` under another name or in another database now.
    pub fn moved(&mut self, db: i32, old: &Lock, lock: &Lock) {
        if let Some(binding) = self.remove(id_of(old)) {
            self.insert(Binding { db, lock: lock.clone(), ..binding });
        }
    }

    /// The connection is closed: a number for each of its locks, which stays bound under that until somebody has seen to it.
    pub fn close(&mut self, client_id: u64) -> Vec<u64> {
        let ids = self.by_client.remove(&client_id).unwrap_or_default();
        ids.into_iter()
            .filter_map(|id| {
                let binding = self.by_lock.get_mut(&id)?;
                self.last_closed = self.last_closed.saturating_add(1).max(CLOSED);
                binding.owner = self.last_closed;
                self.by_number.insert(binding.owner, id);
                Some(binding.owner)
            })
            .collect()
    }

    /// The lock that [`Bindings::close`] gave this number, and where it lies; `None` if it was released or bound to another
    /// connection meanwhile.
    pub fn closed(&self, number: u64) -> Option<(i32, Lock)> {
        let id = self.by_number.get(&number)?;
        self.by_lock.get(id).map(|binding| (binding.db, binding.lock.clone()))
    }

    /// Every lock of `db` is gone, but for those that had left it under another name; of all databases, if `db` is -1.
    pub fn clear(&mut self, db: i32) {
        self.forget(|binding| db < 0 || (binding.db == db && !Registry::is_at_large(&binding.lock)));
    }

    /// SWAPDB.
    pub fn swap(&mut self, a: i32, b: i32) {
        for binding in self.by_lock.values_mut() {
            binding.db = swapped(binding.db, a, b);
        }
    }

    /// Locks that went without their holder's doing (expiry, DEL) leave their binding behind for a while.
    fn forget_gone(&mut self) {
        self.forget(|binding| binding.lock.is_gone());
    }

    fn forget(&mut self, is_over: impl Fn(&Binding) -> bool) {
        let over: Vec<Lock> =
            self.by_lock.values().filter(|binding| is_over(binding)).map(|binding| binding.lock.clone()).collect();
        over.iter().for_each(|lock| self.release(lock));
    }

    /// How many locks are bound.
    pub fn len(&self) -> usize {
        self.by_lock.values().filter(|binding| !binding.lock.is_gone()).count()
    }

    /// Whether nothing is bound: then a closing connection needs no further look.
    pub fn is_empty(&self) -> bool {
        self.by_lock.is_empty()
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

    /// The fences of the locks that were bound to this connection, which is closed now, in order.
    fn closed(bindings: &mut Bindings, client_id: u64) -> Vec<u64> {
        let numbers = bindings.close(client_id);
        let mut fences: Vec<u64> =
            numbers.iter().filter_map(|number| Some(bindings.closed(*number)?.1.fence())).collect();
        fences.sort_unstable();
        assert_eq!(fences.len(), numbers.len());
        fences
    }

    #[test]
    fn a_binding_moves_with_the_last_claim_or_renewal() {
        let mut bindings = Bindings::default();
        let (one, two) = (lock(1), lock(2));
        bindings.bind(7, 0, &one);
        bindings.bind(7, 0, &two);
        bindings.bind(8, 0, &one);
        assert_eq!(bindings.len(), 2);
        assert_eq!(closed(&mut bindings, 7), [2]);
        assert!(bindings.close(7).is_empty());
        bindings.release(&two);
        bindings.release(&one);
        assert!(bindings.close(8).is_empty() && bindings.is_empty());
        assert!(bindings.by_client.is_empty() && bindings.by_number.is_empty());
    }

    #[test]
    fn a_lock_bound_anew_after_the_close_is_the_new_connections() {
        let mut bindings = Bindings::default();
        let (one, two) = (lock(1), lock(2));
        bindings.bind(7, 0, &one);
        bindings.bind(7, 0, &two);
        let numbers = bindings.close(7);
        assert_eq!((numbers.len(), bindings.len()), (2, 2));
        bindings.bind(8, 0, &one);
        let left: Vec<u64> =
            numbers.iter().filter_map(|number| bindings.closed(*number)).map(|(_, lock)| lock.fence()).collect();
        assert_eq!(left, [2]);
        bindings.release(&two);
        assert!(numbers.iter().all(|number| bindings.closed(*number).is_none()));
        assert_eq!(closed(&mut bindings, 8), [1]);
    }

    #[test]
    fn a_lock_that_moves_after_the_close_is_found_where_it_lies() {
        let mut bindings = Bindings::default();
        let (one, renamed) = (lock(1), lock(1));
        bindings.bind(7, 0, &one);
        let numbers = bindings.close(7);
        bindings.moved(3, &one, &renamed);
        let found: Vec<(i32, Lock)> = numbers.iter().filter_map(|number| bindings.closed(*number)).collect();
        assert!(matches!(&found[..], [(3, lock)] if lock.is(&renamed)));
        bindings.release(&one);
        assert_eq!(bindings.len(), 1);
        bindings.release(&renamed);
        assert!(bindings.is_empty() && bindings.by_client.is_empty() && bindings.by_number.is_empty());
    }

    #[test]
    fn numbers_are_given_once() {
        let mut bindings = Bindings::default();
        let one = lock(1);
        bindings.bind(7, 0, &one);
        let first = bindings.close(7);
        bindings.release(&one);
        bindings.bind(8, 0, &one);
        assert_ne!(bindings.close(8), first);
        assert!(bindings.closed(first[0]).is_none());
    }

    #[test]
    fn locks_of_one_fence_are_bound_each_for_itself() {
        let mut bindings = Bindings::default();
        let (one, twin, renamed) = (lock(1), lock(1), lock(1));
        bindings.bind(7, 0, &one);
        bindings.moved(3, &twin, &renamed);
        bindings.release(&twin);
        assert_eq!(bindings.len(), 1);
        bindings.bind(8, 5, &twin);
        assert_eq!(bindings.len(), 2);
        bindings.moved(3, &one, &renamed);
        let ofs = [7, 8].map(|client_id| {
            let numbers = bindings.close(client_id);
            bindings.closed(numbers[0]).expect("bound")
        });
        assert!(matches!(&ofs, [(3, first), (5, second)] if first.is(&renamed) && second.is(&twin)));
    }

    #[test]
    fn locks_that_are_gone_are_forgotten_in_time() {
        let mut bindings = Bindings::default();
        for fence in 1..=10_000 {
            let lock = lock(fence);
            bindings.bind(fence % 3, 0, &lock);
            lock.set_gone();
        }
        assert_eq!(bindings.len(), 0);
        assert!(bindings.by_lock.len() <= LIMIT_MIN, "{}", bindings.by_lock.len());
    }

    #[test]
    fn databases_are_swapped_and_cleared() {
        let mut bindings = Bindings::default();
        bindings.bind(7, 0, &lock(1));
        bindings.bind(7, 3, &lock(2));
        bindings.bind(7, 5, &lock(3));
        bindings.swap(0, 3);
        bindings.clear(3);
        let mut left: Vec<(u64, i32)> =
            bindings.by_lock.values().map(|binding| (binding.lock.fence(), binding.db)).collect();
        left.sort_unstable();
        assert_eq!(left, [(2, 0), (3, 5)]);
        assert_eq!(closed(&mut bindings, 7), [2, 3]);
        bindings.bind(7, 0, &lock(1));
        bindings.clear(-1);
        assert!(bindings.is_empty());
    }
}
