//! How waits end, and whom nobody has told yet.
//!
//! Between the end of a wait and the client's reply lies the rest of a turn of the server's event loop. What becomes of
//! the client in it (killed, unblocked by CLIENT UNBLOCK) decides whether a grant stands.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::rc::Rc;

use super::lock::Lock;
use crate::server::blocking::Handle;

/// A grant to clients that waited. Those with the same token share it, and one who knows of it is enough.
#[derive(Debug)]
pub struct Granted {
    /// The database of the lock.
    db: Cell<i32>,
    told: Cell<bool>,
    /// As the last of them was granted it, and how often it had been renewed then: renewed since, somebody knows of it.
    lock: RefCell<(Lock, u32)>,
}

impl Granted {
    /// A grant that nobody has heard of yet.
    pub fn new(db: i32, lock: &Lock) -> Rc<Self> {
        Rc::new(Self { db: Cell::new(db), told: Cell::new(false), lock: RefCell::new((lock.clone(), lock.renewals())) })
    }

    /// The same grant once more, to another with the same token.
    pub fn set_lock(&self, lock: &Lock) {
        self.lock.replace((lock.clone(), lock.renewals()));
    }

    /// The lock `old` lies in `db` as `lock` now, under another name.
    fn moved(&self, db: i32, old: &Lock, lock: &Lock) {
        let mut held = self.lock.borrow_mut();
        if held.0.is(old) {
            held.0 = lock.clone();
            self.db.set(db);
        }
    }

    /// Somebody hears of it now.
    pub fn tell(&self) {
        self.told.set(true);
    }

    /// The lock as it was granted last.
    pub fn lock(&self) -> Lock {
        self.lock.borrow().0.clone()
    }

    /// The database and the lock, and how often it had been renewed, if this was the last client that could have heard of
    /// the grant, and none has.
    pub fn unheard(self: Rc<Self>) -> Option<(i32, Lock, u32)> {
        let granted = Rc::into_inner(self)?;
        if granted.told.get() {
            return None;
        }
        let (lock, renewals) = granted.lock.into_inner();
        Some((granted.db.get(), lock, renewals))
    }
}

/// The number that the database `db` has after SWAPDB.
pub fn swapped(db: i32, a: i32, b: i32) -> i32 {
    if db == a {
        b
    } else if db == b {
        a
    } else {
        db
    }
}

/// How a wait ended.
#[derive(Debug)]
pub enum Outcome {
    Granted(Rc<Granted>),
    TimedOut,
    Failed(&'static CStr),
}

/// Ends of waits in their order, to be told at the end of the turn.
#[derive(Debug, Default)]
pub struct Ended {
    list: Vec<Option<(Handle, Outcome)>>,
    by_handle: HashMap<usize, usize>,
}

impl Ended {
    /// Notes the end of the wait of the client with this handle.
    pub fn push(&mut self, handle: Handle, outcome: Outcome) {
        self.by_handle.insert(handle.addr(), self.list.len());
        self.list.push(Some((handle, outcome)));
    }

    /// The end of one client's wait, taken out because something else happened to that client.
    pub fn take(&mut self, handle: usize) -> Option<Outcome> {
        let index = self.by_handle.remove(&handle)?;
        self.list.get_mut(index)?.take().map(|(_, outcome)| outcome)
    }

    /// All of them, in order.
    pub fn take_all(&mut self) -> Vec<(Handle, Outcome)> {
        std::mem::take(self).list.into_iter().flatten().collect()
    }

    /// A lock lies under another name now.
    pub fn moved(&self, db: i32, old: &Lock, lock: &Lock) {
        self.grants().for_each(|granted| granted.moved(db, old, lock));
    }

    /// SWAPDB.
    pub fn swap(&self, a: i32, b: i32) {
        // Some share their grant.
        let mut seen = HashSet::new();
        for granted in self.grants().filter(|granted| seen.insert(Rc::as_ptr(granted))) {
            granted.db.set(swapped(granted.db.get(), a, b));
        }
    }

    fn grants(&self) -> impl Iterator<Item = &Rc<Granted>> {
        self.list.iter().flatten().filter_map(|(_, outcome)| match outcome {
            Outcome::Granted(granted) => Some(granted),
            _ => None,
        })
    }

    /// Whether everybody has been told.
    pub fn is_empty(&self) -> bool {
        self.by_handle.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::lock::Grant;

    #[test]
    fn only_a_grant_that_nobody_heard_of_comes_back_and_once() {
        let lock = |fence| {
            let grant = Grant {
                token: b"t",
                holder: b"",
                fence,
                claimed_at_ms: 0,
                renewed_at_ms: 0,
                renewals: 0,
                linger_ms: None,
            };
            Lock::new(b"k", &grant)
        };
        let first = Granted::new(3, &lock(1));
        let second = first.clone();
        second.set_lock(&lock(2));
        assert!(first.unheard().is_none());
        let renewed = lock(2);
        second.set_lock(&renewed);
        assert!(renewed.renew(5));
        let (db, found, renewals) = second.unheard().expect("unheard");
        assert_eq!((db, found.fence(), renewals), (3, 2, 0));

        let first = Granted::new(3, &lock(1));
        let second = first.clone();
        first.tell();
        assert!(second.unheard().is_none());
        assert!(first.unheard().is_none());
    }

    #[test]
    fn a_grant_goes_with_its_lock() {
        let grant = Grant {
            token: b"t",
            holder: b"",
            fence: 1,
            claimed_at_ms: 0,
            renewed_at_ms: 0,
            renewals: 0,
            linger_ms: None,
        };
        let (old, new, other) = (Lock::new(b"k", &grant), Lock::new(b"l", &grant), Lock::new(b"m", &grant));
        let granted = Granted::new(3, &old);
        let mut ended = Ended::default();
        ended.push(Handle::numbered(1), Outcome::Granted(granted.clone()));
        ended.push(Handle::numbered(2), Outcome::Granted(granted.clone()));
        ended.moved(7, &other, &new);
        ended.moved(5, &old, &new);
        ended.swap(5, 9);
        drop(ended);
        let (db, lock, _) = granted.unheard().expect("unheard");
        assert_eq!((db, lock.key()), (9, &b"l"[..]));
    }

    #[test]
    fn each_end_is_told_once_and_in_order() {
        let mut ended = Ended::default();
        for handle in [7, 3, 5] {
            ended.push(Handle::numbered(handle), Outcome::TimedOut);
        }
        assert!(ended.take(3).is_some());
        assert!(ended.take(3).is_none());
        assert!(!ended.is_empty());
        let handles: Vec<usize> = ended.take_all().iter().map(|(handle, _)| handle.addr()).collect();
        assert_eq!(handles, [7, 5]);
        assert!(ended.is_empty());
    }
}
