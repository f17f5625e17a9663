//! Who waits for which lock: first come first served, with two kinds of deadlines.
//!
//! A wait ends at a time of the monotonic clock, since no step of the wall clock may lengthen it. A lock's deadline is the
//! key's own, so it is wall clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::names::Names;
use crate::server::blocking::Handle;

/// The place of a waiter among all waiters: later ones are greater.
pub type WaiterId = u64;

/// What a client that waits has asked for. Times are in ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// `None`: the server makes the token at the grant.
    pub token: Option<Box<[u8]>>,
    /// The public label of the lock to be.
    pub holder: Box<[u8]>,
    /// Counted from the grant.
    pub ttl_ms: i64,
    /// `None` without LINGER.
    pub linger_ms: Option<i64>,
    /// The server's id of the connection, for LINGER.
    pub connection_id: Option<u64>,
    /// The name of the ACL user who asked; `None` for somebody whom no ACL binds.
    pub user: Option<Box<[u8]>>,
}

/// The same, borrowed: what a client asks for that need not wait.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// `None`: the server makes the token at the grant.
    pub token: Option<&'a [u8]>,
    /// The public label.
    pub holder: &'a [u8],
    /// Counted from the grant.
    pub ttl_ms: i64,
    /// `None` without LINGER.
    pub linger_ms: Option<i64>,
    /// The server's id of the connection; `None` for a script or another module.
    pub connection_id: Option<u64>,
}

impl Terms<'_> {
    /// Keeps them beyond the call, as what `user` wishes for.
    pub fn to_wish(self, user: Option<Box<[u8]>>) -> Wish {
        Wish {
            token: self.token.map(Into::into),
            holder: self.holder.into(),
            ttl_ms: self.ttl_ms,
            linger_ms: self.linger_ms,
            connection_id: self.connection_id,
            user,
        }
    }
}

impl Wish {
    /// The same, borrowed.
    pub fn terms(&self) -> Terms<'_> {
        Terms {
            token: self.token.as_deref(),
            holder: &self.holder,
            ttl_ms: self.ttl_ms,
            linger_ms: self.linger_ms,
            connection_id: self.connection_id,
        }
    }
}

/// One client in a queue.
#[derive(Debug)]
pub struct Waiter {
    /// The database of the key.
    pub db: i32,
    /// What it waits for.
    pub key: Arc<[u8]>,
    /// What it has asked for.
    pub wish: Wish,
    /// The server's handle of the blocked client.
    pub handle: Handle,
    until_ms: Option<i64>,
}

/// The queue of one key.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeSet<WaiterId>,
    /// When to look again because the lock's deadline passes, Unix time in ms.
    wake_at_ms: Option<i64>,
    /// Listed in `Waiting::dirty`.
    is_dirty: bool,
    /// Listed in `Waiting::named`.
    is_named: bool,
    /// Listed in `Waiting::lately`.
    is_lately: bool,
}

/// A key that somebody waits for.
pub type Place = (i32, Arc<[u8]>);

/// Of how many named keys [`Waiting::lately`] knows.
const LATELY_MAX: usize = 256;

/// All queues.
#[derive(Debug, Default)]
pub struct Waiting {
    last_id: WaiterId,
    waiters: HashMap<WaiterId, Waiter>,
    by_handle: HashMap<usize, WaiterId>,
    queues: BTreeMap<i32, BTreeMap<Arc<[u8]>, Queue>>,
    /// Ends of waits, monotonic ms.
    ends: BTreeSet<(i64, WaiterId)>,
    /// Deadlines of locks that somebody waits for, Unix time in ms.
    wakes: BTreeSet<(i64, Place)>,
    /// Waiters by queue and token, so that a repeated wish is answered with its twin.
    twins: BTreeSet<(u64, WaiterId)>,
    hasher: RandomState,
    /// Keys to look at because something happened to them.
    dirty: Vec<Place>,
    /// The keys of the queues.
    names: Names,
    /// Keys to look at because a command names them, which may change them without a sign.
    named: Vec<Place>,
    /// The last keys that commands named: a transaction that was queued meanwhile may change them.
    lately: VecDeque<Place>,
}

impl Waiting {
    /// Adds a client at the end of its queue. It waits until `until_ms` (monotonic), or without limit.
    pub fn join(&mut self, db: i32, key: &[u8], wish: Wish, handle: Handle, until_ms: Option<i64>) -> WaiterId {
        self.last_id = self.last_id.saturating_add(1);
        let id = self.last_id;
        let queues = self.queues.entry(db).or_default();
        let (key, is_new): (Arc<[u8]>, bool) = match queues.get_key_value(key) {
            Some((key, _)) => (key.clone(), false),
            None => (key.into(), true),
        };
        queues.entry(key.clone()).or_default().waiters.insert(id);
        if is_new {
            self.names.add(&key);
        }
        if let Some(until_ms) = until_ms {
            self.ends.insert((until_ms, id));
        }
        if let Some(token) = &wish.token {
            self.twins.insert((self.twin_hash(db, &key, token), id));
        }
        self.by_handle.insert(handle.addr(), id);
        self.waiters.insert(id, Waiter { db, key, wish, handle, until_ms });
        id
    }

    /// Takes a client out, whatever the reason. `None` if it is not waiting (any more).
    pub fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.by_handle.remove(&waiter.handle.addr());
        if let Some(until_ms) = waiter.until_ms {
            self.ends.remove(&(until_ms, id));
        }
        if let Some(token) = &waiter.wish.token {
            self.twins.remove(&(self.twin_hash(waiter.db, &waiter.key, token), id));
        }
        if let Some(queues) = self.queues.get_mut(&waiter.db) {
            if let Some(queue) = queues.get_mut(&waiter.key) {
                queue.waiters.remove(&id);
                if queue.waiters.is_empty() {
                    if let Some(wake_at_ms) = queue.wake_at_ms {
                        self.wakes.remove(&(wake_at_ms, (waiter.db, waiter.key.clone())));
                    }
                    let is_lately = queue.is_lately;
                    queues.remove(&waiter.key);
                    self.names.remove(&waiter.key);
                    if is_lately {
                        self.lately.retain(|(db, key)| (*db, key) != (waiter.db, &waiter.key));
                    }
                }
            }
            if queues.is_empty() {
                self.queues.remove(&waiter.db);
            }
        }
        if self.waiters.is_empty() {
            // The memory of a flood goes with it; the order of arrival goes on.
            *self = Self { last_id: self.last_id, ..Self::default() };
        }
        Some(waiter)
    }

    fn twin_hash(&self, db: i32, key: &[u8], token: &[u8]) -> u64 {
        self.hasher.hash_one((db, key, token))
    }

    fn queue(&self, db: i32, key: &[u8]) -> Option<&Queue> {
        self.queues.get(&db)?.get(key)
    }

    /// Who is next for a key.
    pub fn head(&self, db: i32, key: &[u8]) -> Option<(WaiterId, &Waiter)> {
        let id = *self.queue(db, key)?.waiters.first()?;
        Some((id, self.waiters.get(&id)?))
    }

    /// A client that waits for the key with this very token.
    pub fn twin(&self, db: i32, key: &[u8], token: &[u8]) -> Option<WaiterId> {
        let hash = self.twin_hash(db, key, token);
        self.twins.range((hash, 0)..=(hash, WaiterId::MAX)).map(|(_, id)| *id).find(|id| {
            self.waiters.get(id).is_some_and(|waiter| {
                waiter.db == db && *waiter.key == *key && waiter.wish.token.as_deref() == Some(token)
            })
        })
    }

    /// A client that waits; `None` if it does not, or not any more.
    pub fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    /// The client whose handle is at this address.
    pub fn by_handle(&self, handle: usize) -> Option<WaiterId> {
        self.by_handle.get(&handle).copied()
    }

    /// How many wait for a key.
    pub fn count(&self, db: i32, key: &[u8]) -> usize {
        self.queue(db, key).map_or(0, |queue| queue.waiters.len())
    }

    /// Whether anybody waits for a key.
    pub fn has(&self, db: i32, key: &[u8]) -> bool {
        !self.is_empty() && self.queue(db, key).is_some()
    }

    /// How many wait in all.
    pub fn total(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// When the lock that a queue waits for lapses, Unix time in ms; `None` if it never does. Nothing without a queue.
    pub fn set_wake(&mut self, db: i32, key: &[u8], wake_at_ms: Option<i64>) {
        let Some((key, queue)) = self.queues.get_mut(&db).and_then(|queues| {
            let key = queues.get_key_value(key)?.0.clone();
            Some((key.clone(), queues.get_mut(&key)?))
        }) else {
            return;
        };
        if queue.wake_at_ms == wake_at_ms {
            return;
        }
        if let Some(old_ms) = queue.wake_at_ms {
            self.wakes.remove(&(old_ms, (db, key.clone())));
        }
        queue.wake_at_ms = wake_at_ms;
        if let Some(wake_at_ms) = wake_at_ms {
            self.wakes.insert((wake_at_ms, (db, key)));
        }
    }

    /// Something happened to a key: look at its queue, if it has one, as soon as may be. Returns whether it has one.
    pub fn mark(&mut self, db: i32, key: &[u8]) -> bool {
        let Some(queues) = self.queues.get_mut(&db) else { return false };
        let Some(key) = queues.get_key_value(key).map(|(key, _)| key.clone()) else { return false };
        if let Some(queue) = queues.get_mut(&key).filter(|queue| !queue.is_dirty) {
            queue.is_dirty = true;
            self.dirty.push((db, key));
        }
        true
    }

    /// Something happened to a whole database, or to all of them (-1). Returns whether anybody waits there.
    pub fn mark_db(&mut self, db: i32) -> bool {
        let mut any = false;
        for (number, queues) in &mut self.queues {
            if db >= 0 && *number != db {
                continue;
            }
            for (key, queue) in queues {
                any = true;
                if !queue.is_dirty {
                    queue.is_dirty = true;
                    self.dirty.push((*number, key.clone()));
                }
            }
        }
        any
    }

    /// Whether somebody may wait for a key of this name, in whatever database. Cheap, and right where it says no.
    pub fn may_have(&self, word: &[u8]) -> bool {
        self.names.may_have(word)
    }

    /// A command that is about to run names `word`: if somebody waits for a key of this name in any database, it is to be
    /// looked at when the command has run. Returns whether there is such a key.
    pub fn name(&mut self, word: &[u8]) -> bool {
        let mut any = false;
        for (db, queues) in &mut self.queues {
            let Some(key) = queues.get_key_value(word).map(|(key, _)| key.clone()) else { continue };
            let Some(queue) = queues.get_mut(&key) else { continue };
            any = true;
            if !queue.is_lately {
                queue.is_lately = true;
                self.lately.push_back((*db, key.clone()));
            }
            if !queue.is_named {
                queue.is_named = true;
                self.named.push((*db, key));
            }
        }
        self.trim_lately();
        any
    }

    /// A transaction that was queued before anybody waited for this key may change it without a sign.
    pub fn suspect(&mut self, db: i32, key: &[u8]) {
        let Some(queues) = self.queues.get_mut(&db) else { return };
        let Some(key) = queues.get_key_value(key).map(|(key, _)| key.clone()) else { return };
        if let Some(queue) = queues.get_mut(&key).filter(|queue| !queue.is_lately) {
            queue.is_lately = true;
            self.lately.push_back((db, key));
            self.trim_lately();
        }
    }

    fn trim_lately(&mut self) {
        while self.lately.len() > LATELY_MAX {
            let Some((db, key)) = self.lately.pop_front() else { break };
            if let Some(queue) = self.queues.get_mut(&db).and_then(|queues| queues.get_mut(&key)) {
                queue.is_lately = false;
            }
        }
    }

    /// A transaction is about to run, whose commands were named when they were queued. Returns whether it may change a key
    /// that somebody waits for.
    pub fn name_again(&mut self) -> bool {
        let mut any = false;
        for (db, key) in &self.lately {
            let Some(queue) = self.queues.get_mut(db).and_then(|queues| queues.get_mut(key)) else { continue };
            any = true;
            if !queue.is_named {
                queue.is_named = true;
                self.named.push((*db, key.clone()));
            }
        }
        any
    }

    /// Whether some key was named and not looked at since.
    pub fn has_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// A key that was named, taken off the list.
    pub fn take_named(&mut self) -> Option<Place> {
        let (db, key) = self.named.pop()?;
        if let Some(queue) = self.queues.get_mut(&db).and_then(|queues| queues.get_mut(&key)) {
            queue.is_named = false;
        }
        Some((db, key))
    }

    /// Whether some key is to be looked at now.
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A key to look at now, taken off the list.
    pub fn take_dirty(&mut self) -> Option<Place> {
        let (db, key) = self.dirty.pop()?;
        if let Some(queue) = self.queues.get_mut(&db).and_then(|queues| queues.get_mut(&key)) {
            queue.is_dirty = false;
        }
        Some((db, key))
    }

    /// Marks the queues whose lock's deadline is behind `now_ms` (Unix time), `count` at most.
    pub fn mark_lapsed(&mut self, now_ms: i64, count: usize) {
        for _ in 0..count {
            match self.wakes.first() {
                Some((wake_at_ms, _)) if *wake_at_ms <= now_ms => {}
                _ => return,
            }
            if let Some((_, (db, key))) = self.wakes.pop_first() {
                if let Some(queue) = self.queues.get_mut(&db).and_then(|queues| queues.get_mut(&key)) {
                    queue.wake_at_ms = None;
                }
                self.mark(db, &key);
            }
        }
    }

    /// A client whose wait ended at or before `now_ms` (monotonic).
    pub fn ended(&self, now_ms: i64) -> Option<WaiterId> {
        self.ends.first().filter(|(until_ms, _)| *until_ms <= now_ms).map(|(_, id)| *id)
    }

    /// In how many ms something is due, given both clocks: 0 for now, `None` for nothing at all.
    pub fn due_in_ms(&self, monotonic_ms: i64, unix_ms: i64) -> Option<i64> {
        if self.has_dirty() || self.has_named() {
            return Some(0);
        }
        let end = self.ends.first().map(|(until_ms, _)| until_ms.saturating_sub(monotonic_ms));
        let wake = self.wakes.first().map(|(wake_at_ms, _)| wake_at_ms.saturating_sub(unix_ms));
        [end, wake].into_iter().flatten().min().map(|ms| ms.max(0))
    }

    /// The `count` queues behind `place`, and from the start again: for a look at keys that change without a sign. Fewer, but
    /// at least one, if their names have `bytes` or more.
    pub fn around(&self, place: Option<&Place>, count: usize, bytes: usize) -> Vec<Place> {
        let mut named = 0_usize;
        let within = |place: &Place| {
            let is_within = named < bytes.max(1);
            named = named.saturating_add(place.1.len());
            is_within
        };
        let all = || self.queues.iter().flat_map(|(db, queues)| queues.keys().map(move |key| (*db, key.clone())));
        match place {
            None => all().take(count).take_while(within).collect(),
            Some((db, key)) => {
                let behind = self.queues.get(db).into_iter().flat_map(|queues| {
                    use std::ops::Bound::{Excluded, Unbounded};
                    queues.range::<Arc<[u8]>, _>((Excluded(key), Unbounded)).map(|(key, _)| (*db, key.clone()))
                });
                let later = self
                    .queues
                    .range(db.saturating_add(1)..)
                    .flat_map(|(db, queues)| queues.keys().map(move |key| (*db, key.clone())));
                let queues: usize = self.queues.values().map(BTreeMap::len).sum();
                behind.chain(later).chain(all()).take(count.min(queues)).take_while(within).collect()
            }
        }
    }

    /// Everybody who waits, in order of arrival.
    pub fn everybody(&self) -> Vec<WaiterId> {
        let mut ids: Vec<WaiterId> = self.waiters.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Everybody who waits for a key, in order.
    pub fn everybody_at(&self, db: i32, key: &[u8]) -> Vec<WaiterId> {
        self.queue(db, key).map(|queue| queue.waiters.iter().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
