//! The registry: which locks each database holds, in the order of their keys and by holder.
//!
//! Most locks are claimed and released within moments and never listed, so order is made late. A new lock goes to the end
//! of `fresh`, and leaves it, in constant time; only what is still there when `fresh` overflows, or when somebody lists,
//! is put into the ordered sets ([`super::shelves`]). A lock that leaves the sets is first only marked dead, and dead ones
//! are taken out in small sorted batches, whose neighbours share a shelf. Both bounds are small, so no single command pays
//! for many.
//!
//! A lock is registered once in its life; under another name it becomes another lock ([`Lock::renamed`]).

use std::ops::Bound;

use super::Bytes;
use super::bulk_sort::{Heads, Sorted};
use super::lock::{Lock, PLACE_MAX};
use super::outcome::swapped;
use super::shelves::{self, ByHolder, ByKey, Order, Shelves};

/// Locks that may be out of order before the oldest of them are put in order.
const FRESH_MAX: usize = 512;
/// How many are put in order at a time.
const SETTLE_BATCH: usize = 64;
/// Dead locks that may lie in the ordered sets before they are taken out.
const DEAD_MAX: usize = 64;
/// Capacity that an empty database keeps.
const SPARE: usize = 64;
/// Locks that may be adrift before those that have died since are forgotten.
const ADRIFT_MIN: usize = 64;

/// More locks than can be dropped in a moment.
const LARGE: usize = 4_096;

/// Not registered; lies, if anywhere, in the database and under the name it was loaded with.
const NOWHERE: u16 = PLACE_MAX;
/// In the ordered sets.
const SETTLED: u16 = PLACE_MAX - 1;
/// In the ordered sets, but no longer a lock.
const DEAD: u16 = PLACE_MAX - 2;
/// Unlinked from its name and noted; may live on under another one.
const ADRIFT: u16 = PLACE_MAX - 3;
/// Was registered once; neither registered nor noted any more.
const REMOVED: u16 = PLACE_MAX - 4;
/// Noted as such a one, and found under a name where it can't be registered now.
const LOCATED: u16 = PLACE_MAX - 5;

/// Every index of `fresh` is another place than these.
const _: () = assert!(FRESH_MAX < LOCATED as usize);

/// The locks of one database.
#[derive(Debug, Default)]
struct Db {
    /// Not yet in order; each knows its index here.
    fresh: Vec<Lock>,
    sets: Sets,
    /// Marked dead and still in the sets.
    dead: Vec<Lock>,
    live: usize,
}

impl Db {
    fn add(&mut self, lock: &Lock) {
        lock.set_place(self.fresh.len() as u16);
        self.fresh.push(lock.clone());
        self.live = self.live.saturating_add(1);
        if self.fresh.len() > FRESH_MAX {
            self.settle(SETTLE_BATCH);
        }
    }

    /// Returns whether it was here.
    fn remove(&mut self, lock: &Lock) -> bool {
        match lock.place() {
            NOWHERE | ADRIFT | LOCATED | DEAD | REMOVED => return false,
            SETTLED => {
                lock.set_place(DEAD);
                self.dead.push(lock.clone());
            }
            index => {
                let index = index as usize;
                if !self.fresh.get(index).is_some_and(|found| found.is(lock)) {
                    return false;
                }
                self.fresh.swap_remove(index);
                if let Some(moved) = self.fresh.get(index) {
                    moved.set_place(index as u16);
                }
                lock.set_place(REMOVED);
            }
        }
        self.live = self.live.saturating_sub(1);
        if self.live == 0 {
            self.clear();
        } else if self.dead.len() > DEAD_MAX {
            self.bury();
        }
        true
    }

    /// Forgets every lock, and the memory that many locks needed.
    fn clear(&mut self) {
        self.sets.clear();
        for lock in self.fresh.drain(..).chain(self.dead.drain(..)) {
            forget(&lock);
        }
        self.fresh.shrink_to(SPARE);
        self.dead.shrink_to(SPARE);
        self.live = 0;
    }

    /// Puts the `count` oldest of `fresh` in order.
    fn settle(&mut self, count: usize) {
        let count = count.min(self.fresh.len());
        // The newest fill the places of the oldest, so that the rest stays in place.
        let mut batch = self.fresh.split_off(self.fresh.len().saturating_sub(count));
        let kept = self.fresh.len().min(count);
        for (index, (old, new)) in self.fresh.iter_mut().zip(&mut batch).take(kept).enumerate() {
            std::mem::swap(old, new);
            old.set_place(index as u16);
        }
        for lock in &batch {
            lock.set_place(SETTLED);
        }
        self.sets.insert_all(batch);
    }

    fn settle_all(&mut self) {
        if !self.fresh.is_empty() {
            self.settle(self.fresh.len());
            self.fresh.shrink_to(SPARE);
        }
    }

    /// Takes the dead out of the ordered sets.
    fn bury(&mut self) {
        let mut dead = std::mem::take(&mut self.dead);
        self.sets.remove_all(&mut dead);
        dead.drain(..).for_each(|lock| forget(&lock));
        self.dead = dead;
    }

    /// Adds many at once, most or all of which came in no order. They are marked as settled on the way.
    fn add_all(&mut self, locks: impl Iterator<Item = Lock>, heads: &Heads) {
        self.settle_all();
        let mut count: usize = 0;
        let locks = locks.inspect(|_| count = count.saturating_add(1));
        let before = std::mem::take(&mut self.sets).into_locks();
        self.sets = Sets::filled(Sorted::new(locks.chain(before), heads));
        self.live = self.live.saturating_add(count);
    }
}

/// The ordered sets. Most locks have no holder where nobody asks for holders, and such are in one set alone.
#[derive(Debug, Default)]
struct Sets {
    /// The locks without a holder.
    unnamed: Shelves<ByKey>,
    /// The locks with a holder, twice.
    by_key: Shelves<ByKey>,
    by_holder: Shelves<ByHolder>,
}

impl Sets {
    fn filled(Sorted { unnamed, by_key, by_holder }: Sorted) -> Self {
        Self {
            unnamed: Shelves::filled(unnamed),
            by_key: Shelves::filled(by_key),
            by_holder: Shelves::filled(by_holder),
        }
    }

    /// Those that come in order find their neighbours' place in the processor's caches.
    fn insert_all(&mut self, mut batch: Vec<Lock>) {
        batch.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        for lock in &batch {
            if lock.holder().is_empty() {
                self.unnamed.insert(lock.clone());
            } else {
                self.by_key.insert(lock.clone());
            }
        }
        batch.retain(|lock| !lock.holder().is_empty());
        batch.sort_by(|a, b| a.holder().cmp(b.holder()));
        batch.into_iter().for_each(|lock| self.by_holder.insert(lock));
    }

    fn remove_all(&mut self, batch: &mut [Lock]) {
        batch.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        for lock in batch.iter() {
            if lock.holder().is_empty() {
                self.unnamed.remove(lock);
            } else {
                self.by_key.remove(lock);
            }
        }
        batch.sort_by(|a, b| a.holder().cmp(b.holder()));
        batch.iter().filter(|lock| !lock.holder().is_empty()).for_each(|lock| self.by_holder.remove(lock));
    }

    fn clear(&mut self) {
        self.unnamed.clear();
        self.by_key.clear();
        self.by_holder.clear();
    }

    fn into_locks(self) -> impl Iterator<Item = Lock> {
        self.unnamed.into_locks().chain(self.by_key.into_locks())
    }

    /// The next `count` live ones on this walk.
    fn walk(&self, walk: &Walk<'_>, count: usize) -> Vec<Lock> {
        match walk.holder {
            Some(b"") => walk.collect(&self.unnamed, count),
            Some(_) => walk.collect(&self.by_holder, count),
            None => {
                let mut locks = walk.collect(&self.unnamed, count);
                let named = walk.collect(&self.by_key, count);
                if locks.is_empty() {
                    return named;
                }
                if !named.is_empty() {
                    locks.extend(named);
                    // Merges two parts that are in order.
                    locks.sort_by(|a, b| a.key().cmp(b.key()));
                    locks.truncate(count);
                }
                locks
            }
        }
    }
}

/// Which locks to walk over, always in the order of their keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk<'a> {
    /// Only keys behind this one.
    pub after: Option<&'a [u8]>,
    /// Only keys that start so.
    pub head: &'a [u8],
    /// Only locks of exactly this holder.
    pub holder: Option<&'a [u8]>,
}

impl Walk<'_> {
    /// The next `count` live ones out of this set.
    fn collect<O: Order>(&self, set: &Shelves<O>, count: usize) -> Vec<Lock> {
        let after = self.after.filter(|after| *after >= self.head);
        let key = after.unwrap_or(self.head);
        let mut room = Bytes::new();
        let rank = match self.holder {
            None | Some(b"") => key,
            Some(holder) => {
                shelves::by_holder(holder, key, &mut room);
                &room
            }
        };
        let start = if after.is_some() { Bound::Excluded(rank) } else { Bound::Included(rank) };
        set.range(start)
            .take_while(|lock| {
                lock.key().starts_with(self.head) && self.holder.is_none_or(|holder| lock.holder() == holder)
            })
            .filter(|lock| lock.place() == SETTLED)
            .take(count)
            .cloned()
            .collect()
    }
}

/// What a flush has left of the registry. To drop it takes time in the number of locks, and touches nothing else, so any
/// thread may.
#[derive(Debug, Default)]
pub struct Cleared {
    /// How many locks there were.
    pub count: usize,
    remains: Vec<Option<Box<Db>>>,
}

impl Cleared {
    /// Whether it takes so long to drop that the main thread should not.
    pub fn is_large(&self) -> bool {
        self.remains.iter().flatten().map(|db| db.live).sum::<usize>() > LARGE
    }
}

/// The locks of all databases.
#[derive(Debug, Default)]
pub struct Registry {
    dbs: Vec<Option<Box<Db>>>,
    /// Locks that were loaded and not yet looked up, or unlinked from their name and perhaps not freed, each with the
    /// database where it was.
    adrift: Vec<(i32, Lock)>,
    adrift_limit: usize,
    /// Those among them that lie where they look gone: on a replica, past the deadline, which their primary may yet change.
    located: Vec<(i32, Vec<u8>, Lock)>,
    /// What the locks that were loaded begin with.
    loaded: Heads,
}

impl Registry {
    /// The database, made at its first lock. `None` for a number below 0, which no server gives.
    fn db(&mut self, db: i32) -> Option<&mut Db> {
        let index = usize::try_from(db).ok()?;
        if self.dbs.len() <= index {
            self.dbs.resize_with(index.saturating_add(1), || None);
        }
        Some(self.dbs.get_mut(index)?.get_or_insert_default())
    }

    fn known(&mut self, db: i32) -> Option<&mut Db> {
        self.dbs.get_mut(usize::try_from(db).ok()?)?.as_deref_mut()
    }

    /// Registers a lock that now lies under its own name in `db`.
    pub fn add(&mut self, db: i32, lock: &Lock) {
        if let Some(db) = self.db(db) {
            db.add(lock);
        }
    }

    /// Forgets a lock. Nothing happens to one that is not registered in `db`.
    pub fn remove(&mut self, db: i32, lock: &Lock) {
        if let Some(db) = self.known(db) {
            db.remove(lock);
        }
    }

    /// Whether the lock is registered, and so lies under its own name.
    pub fn is_registered(lock: &Lock) -> bool {
        !matches!(lock.place(), NOWHERE | ADRIFT | LOCATED | DEAD | REMOVED)
    }

    /// Whether the lock has never been registered and never been unlinked: it was loaded.
    pub fn is_unseen(lock: &Lock) -> bool {
        lock.place() == NOWHERE
    }

    /// Whether the keyspace still holds the lock, outside the registry.
    pub fn is_at_large(lock: &Lock) -> bool {
        !lock.is_gone() && !Self::is_registered(lock)
    }

    /// Every lock of `db` is gone; of all databases, if `db` is -1. Perhaps not freed yet, where a background thread does
    /// that, so nothing that lay there may be taken for alive later. Returns how many there were, without those that were
    /// unlinked before, and what is left to drop.
    pub fn clear(&mut self, db: i32) -> Cleared {
        let is_here = |at: i32, lock: &Lock| (db < 0 || at == db) && lock.place() == NOWHERE;
        let unseen = self.adrift.iter().filter(|(at, lock)| is_here(*at, lock) && !lock.is_gone()).count();
        let registered = if db < 0 { self.registered() } else { self.len(db) };
        let remains = if db < 0 {
            self.located.drain(..).for_each(|(.., lock)| lock.set_place(ADRIFT));
            self.forget_adrift();
            std::mem::take(&mut self.dbs)
        } else {
            self.adrift.retain(|(at, lock)| !is_here(*at, lock));
            let slot = usize::try_from(db).ok().and_then(|db| self.dbs.get_mut(db));
            vec![slot.and_then(Option::take)]
        };
        Cleared { count: registered.saturating_add(unseen), remains }
    }

    /// SWAPDB.
    pub fn swap(&mut self, a: i32, b: i32) {
        let (Ok(a), Ok(b)) = (usize::try_from(a), usize::try_from(b)) else { return };
        let greater = a.max(b);
        if self.dbs.len() <= greater {
            self.dbs.resize_with(greater.saturating_add(1), || None);
        }
        self.dbs.swap(a, b);
        let dbs = self.adrift.iter_mut().map(|(db, _)| db).chain(self.located.iter_mut().map(|(db, ..)| db));
        dbs.for_each(|db| *db = swapped(*db, a as i32, b as i32));
    }

    /// How many locks `db` holds; those past their deadline and not yet removed by the server count.
    pub fn len(&self, db: i32) -> usize {
        let index = usize::try_from(db).unwrap_or(usize::MAX);
        self.dbs.get(index).and_then(Option::as_ref).map_or(0, |db| db.live)
    }

    /// The same over all databases.
    pub fn registered(&self) -> usize {
        self.dbs.iter().flatten().map(|db| db.live).sum()
    }

    /// The same, and with the locks that live under a name not looked up yet.
    pub fn total(&self) -> usize {
        self.registered().saturating_add(self.adrift.iter().filter(|(_, lock)| Self::is_at_large(lock)).count())
    }

    /// The next `count` locks of `db` on this walk, in the order of their keys.
    pub fn walk(&mut self, db: i32, walk: &Walk<'_>, count: usize) -> Vec<Lock> {
        let Some(db) = self.known(db) else { return Vec::new() };
        db.settle_all();
        db.sets.walk(walk, count)
    }

    /// Notes a lock that was read from an RDB or a payload, and may or may not become visible in `db`. Its key and holder
    /// are given besides, since to ask the lock for them takes longer.
    pub fn note_loaded(&mut self, db: i32, lock: &Lock, key: &[u8], holder: &[u8]) {
        self.loaded.add(key, holder);
        self.note_adrift(db, lock);
    }

    /// Notes that the keyspace let a lock's name go: it may be dead in a moment, or live on under another name. False if
    /// that was so before, and nobody has looked at the lock since.
    pub fn note_unlinked(&mut self, db: i32, lock: &Lock) -> bool {
        let is_news = !matches!(lock.place(), ADRIFT | LOCATED);
        let was_noted = matches!(lock.place(), NOWHERE | ADRIFT | LOCATED);
        self.remove(db, lock);
        lock.set_place(ADRIFT);
        if !was_noted {
            self.note_adrift(db, lock);
        }
        is_news
    }

    fn note_adrift(&mut self, db: i32, lock: &Lock) {
        if self.adrift.len() >= self.adrift_limit.max(ADRIFT_MIN) {
            let before = self.adrift.len();
            self.forget_gone();
            // In a load all of them are there as a rule, and to look so again and again is in vain.
            let growth = if self.adrift.len() == before { 8 } else { 2 };
            self.adrift_limit = self.adrift.len().saturating_mul(growth);
        }
        self.adrift.push((db, lock.clone()));
    }

    fn forget_gone(&mut self) {
        self.adrift.retain(|(_, lock)| Self::is_at_large(lock));
        if self.adrift.is_empty() {
            self.adrift.shrink_to(SPARE);
        }
    }

    /// The end of a load: whatever was loaded and is still there becomes registered.
    pub fn settle_loaded(&mut self) {
        let heads = std::mem::take(&mut self.loaded);
        // To divide them looks at no lock; that is done once for each, where it is sorted.
        let mut loaded: Vec<Vec<Lock>> = Vec::new();
        let mut adrift = std::mem::take(&mut self.adrift).into_iter();
        while let Some((db, lock)) = adrift.next() {
            let index = usize::try_from(db).unwrap_or_default();
            if loaded.len() <= index {
                loaded.resize_with(index.saturating_add(1), Vec::new);
            }
            if let Some(locks) = loaded.get_mut(index) {
                if locks.is_empty() {
                    // As a rule they are all in one database.
                    locks.reserve_exact(adrift.len().saturating_add(1));
                }
                locks.push(lock);
            }
        }
        let mut still_adrift = Vec::new();
        for (index, locks) in loaded.into_iter().enumerate() {
            let Some(db) = i32::try_from(index).ok().filter(|_| !locks.is_empty()) else { continue };
            let locks = locks.into_iter().filter(Self::is_at_large).filter_map(|lock| {
                if lock.place() == NOWHERE {
                    lock.set_place(SETTLED);
                    return Some(lock);
                }
                still_adrift.push((db, lock));
                None
            });
            if let Some(known) = self.db(db) {
                known.add_all(locks, &heads);
            }
        }
        self.adrift = still_adrift;
        self.adrift_limit = self.adrift.len().saturating_mul(2);
    }

    /// The locks that live under a name that is not known, each with the database where it was last.
    pub fn at_large(&mut self) -> Vec<(i32, Lock)> {
        if self.adrift.is_empty() {
            return Vec::new();
        }
        self.forget_gone();
        self.adrift.clone()
    }

    /// How many of [`Registry::at_large`] there are that were unlinked and not loaded.
    pub fn unlinked_at_large(&self) -> usize {
        self.adrift.iter().filter(|(_, lock)| Self::is_at_large(lock) && lock.place() != NOWHERE).count()
    }

    /// Notes under which name of `db` one of them was found that can't be registered there now.
    pub fn locate(&mut self, db: i32, name: Vec<u8>, lock: &Lock) {
        if lock.place() != LOCATED {
            lock.set_place(LOCATED);
            self.located.push((db, name, lock.clone()));
        }
    }

    /// Where these lie, each until it is unlinked again.
    pub fn located(&mut self) -> Vec<(i32, Vec<u8>)> {
        self.located.retain(|(.., lock)| lock.place() == LOCATED && !lock.is_gone());
        self.located.iter().map(|(db, name, _)| (*db, name.clone())).collect()
    }

    /// Whether one of [`Registry::at_large`] may lie anywhere.
    pub fn has_lost(&self) -> bool {
        self.adrift.iter().any(|(_, lock)| Self::is_at_large(lock) && lock.place() != LOCATED)
    }

    /// Nothing is adrift any more but what was located: whatever else lives has been found and registered.
    pub fn forget_adrift(&mut self) {
        self.adrift.retain(|(_, lock)| {
            if lock.place() == ADRIFT {
                lock.set_place(REMOVED);
            }
            lock.place() == LOCATED && !lock.is_gone()
        });
        self.adrift.shrink_to(SPARE);
    }
}

/// A lock that leaves the registry, unless it was noted as unlinked since it was marked dead.
fn forget(lock: &Lock) {
    if lock.place() != ADRIFT {
        lock.set_place(REMOVED);
    }
}

#[cfg(test)]
mod tests;
