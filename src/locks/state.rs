//! All that the module remembers beside the keyspace, in one place.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};

use super::fence::Fences;
use super::holders::Holders;
use super::linger::Bindings;
use super::lock::Lock;
use super::outcome::{self, Ended};
use super::queue::{Place, Waiting};
use super::registry::Registry;
use super::stats::Stats;

/// A write that some callback found due and could not do itself.
#[derive(Debug)]
pub enum Job {
    /// A grant whose client was gone before it heard of it; see [`Unheard`].
    TakeBack { fence: u64 },
    /// The connection of a lock that lingers is closed, since then (Unix time in ms); which lock, `Bindings::closed` tells.
    Linger { number: u64, closed_at_ms: i64 },
}

/// A lock whose owner was gone before it heard of the grant.
#[derive(Debug)]
pub struct Unheard {
    /// Where the lock lies, as far as is known.
    pub db: i32,
    pub lock: Lock,
    /// How often it had been renewed then: renewed since, somebody knows of it.
    pub renewals: u32,
}

/// The module's one state; see `server/main_thread.rs` for who touches it.
#[derive(Debug, Default)]
pub struct State {
    /// The source of fences.
    pub fences: Fences,
    /// The locks of each database, by key and by holder.
    pub registry: Registry,
    /// Labels that locks share.
    pub holders: Holders,
    /// Who waits for what.
    pub waiting: Waiting,
    /// Whose wait has ended and who was not told yet.
    pub ended: Ended,
    /// Locks that go with a connection.
    pub bindings: Bindings,
    /// What happened since the start.
    pub stats: Stats,
    /// What is due and waits for the tick.
    pub jobs: VecDeque<Job>,
    /// What [`Job::TakeBack`] is about, by fence, which names the lock whatever becomes of the key's name.
    pub unheard: HashMap<u64, Unheard>,
    /// Slots whose locks are another node's copies yet; see `server/imports.rs`.
    pub importing: BTreeSet<u32>,
    /// The last key that was looked at without a sign of change.
    pub patrol: Option<Place>,
    /// When the next such look may be, monotonic ms.
    pub patrol_from_ms: i64,
    /// Where and when (monotonic ms) the last lock was unlinked that nothing has explained yet: an expiry and an eviction
    /// say so right after.
    pub last_unlinked: Option<(u64, i64)>,
    /// The server is a replica: it counts no ends of locks.
    is_replica: bool,
    /// `deleted` and `stats.expired` when the load began that goes on now.
    ends_before_load: (u64, u64),
    /// `deleted` before everything was flushed by the command that still runs: it may do that to load next.
    deleted_before_flush: Option<u64>,
    hasher: RandomState,
}

impl State {
    /// The lock `old` lies in `db` as `lock` now, under another name.
    pub fn moved(&mut self, db: i32, old: &Lock, lock: &Lock) {
        self.bindings.moved(db, old, lock);
        self.ended.moved(db, old, lock);
        if let Some(unheard) = self.unheard.get_mut(&lock.fence()).filter(|unheard| unheard.lock.is(old)) {
            unheard.db = db;
            unheard.lock = lock.clone();
        }
    }

    /// Lets go of labels that no lock has any more; called again and again.
    pub fn sweep_holders(&mut self) {
        if !self.holders.is_empty() {
            let is_idle = self.registry.total() == 0;
            self.holders.sweep(is_idle);
        }
    }

    /// How many locks a rename hides, that were counted as deleted and are to be until they are found. A replica counts none.
    fn hidden(&self) -> u64 {
        if self.is_replica { 0 } else { self.registry.unlinked_at_large() as u64 }
    }

    /// How many locks were deleted from outside.
    fn deleted(&self) -> u64 {
        self.stats.deleted.saturating_sub(self.hidden())
    }

    /// The server is a replica from now on, or none.
    pub fn set_replica(&mut self, is_replica: bool) {
        let deleted = self.deleted();
        self.is_replica = is_replica;
        self.stats.deleted = deleted.saturating_add(self.hidden());
    }

    /// All databases of a server that counts what becomes of its locks are about to be flushed.
    pub fn flush_of_all_begins(&mut self) {
        self.deleted_before_flush = Some(self.deleted());
    }

    /// No command runs any more that flushed all.
    pub fn no_flush_runs(&mut self) {
        self.deleted_before_flush = None;
    }

    /// A load begins. The ends of locks that an append-only file repeats are those of an
    /// earlier life, and what DEBUG RELOAD flushes comes back: neither is to be counted.
    pub fn load_began(&mut self) {
        let deleted = self.deleted_before_flush.take().unwrap_or_else(|| self.deleted());
        self.ends_before_load = (deleted, self.stats.expired);
    }

    /// And has ended.
    pub fn load_ended(&mut self) {
        self.registry.settle_loaded();
        let (deleted, expired) = self.ends_before_load;
        self.stats.deleted = deleted.saturating_add(self.hidden());
        self.stats.expired = expired;
    }

    /// SWAPDB. Clients stay in the database of that number, and so do their queues.
    pub fn swap(&mut self, a: i32, b: i32) {
        self.registry.swap(a, b);
        self.bindings.swap(a, b);
        self.ended.swap(a, b);
        for unheard in self.unheard.values_mut() {
            unheard.db = outcome::swapped(unheard.db, a, b);
        }
    }

    /// Drops what is due: the locks are another server's.
    pub fn forget_jobs(&mut self) {
        self.jobs = VecDeque::new();
        self.unheard = HashMap::new();
    }

    /// A number for a key of a database, to compare and not to keep.
    pub fn place_hash(&self, db: i32, key: &[u8]) -> u64 {
        self.hasher.hash_one((db, key))
    }

    /// The fields of `INFO prlock`: first the gauges, then the counters since the start.
    pub fn fields(&self) -> [(&'static CStr, u64); 21] {
        let stats = &self.stats;
        [
            (c"held", self.registry.total() as u64),
            (c"waiters", self.waiting.total() as u64),
            (c"linger_bound", self.bindings.len() as u64),
            (c"last_fence", self.fences.last()),
            (c"claims_granted", stats.claims_granted),
            (c"claims_refused", stats.claims_refused),
            (c"claims_repeated", stats.claims_repeated),
            (c"claims_after_wait", stats.claims_after_wait),
            (c"waits_started", stats.waits_started),
            (c"waits_timed_out", stats.waits_timed_out),
            (c"waits_abandoned", stats.waits_abandoned),
            (c"renewals", stats.renewals),
            (c"renewals_refused", stats.renewals_refused),
            (c"releases", stats.releases),
            (c"releases_refused", stats.releases_refused),
            (c"steals", stats.steals),
            (c"revoked", stats.revoked),
            (c"lingered", stats.lingered),
            (c"expired", stats.expired),
            (c"evicted", stats.evicted),
            (c"deleted", self.deleted()),
        ]
    }
}
