//! The queue beside a model: plain lists, a keyspace that is a map, and a clock that the test moves.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::locks::fence::Fences;

const KEYS: usize = 4;
const DBS: usize = 2;

/// A key of a database.
type Spot = (i32, Vec<u8>);

fn spot(number: usize) -> Spot {
    ((number % DBS) as i32, format!("k{}", number % KEYS).into_bytes())
}

/// What happens next. Numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    /// With the ms to wait: `None` refuses instead, 0 waits for ever.
    Claim {
        spot: usize,
        ttl_ms: i64,
        block_ms: Option<i64>,
    },
    /// By the owner, or by somebody who is none any more.
    Release {
        grant: usize,
    },
    Renew {
        grant: usize,
        ttl_ms: i64,
    },
    Steal {
        spot: usize,
        ttl_ms: i64,
    },
    /// DEL and its like: the queue hears of it.
    Delete {
        spot: usize,
    },
    FlushDb {
        db: i32,
    },
    /// PEXPIRE and PERSIST by an outsider: the queue hears nothing.
    Expire {
        spot: usize,
        ttl_ms: Option<i64>,
    },
    /// A waiter's connection closes.
    Leave {
        waiter: usize,
    },
    Sleep {
        ms: i64,
    },
    /// The wall clock jumps; the monotonic one does not.
    Jump {
        ms: i64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let spots = 0..KEYS * DBS;
    let ttl = 1..60i64;
    prop::collection::vec(
        prop_oneof![
            6 => (spots.clone(), ttl.clone(), prop::option::weighted(0.9, 0..80i64))
                .prop_map(|(spot, ttl_ms, block_ms)| Step::Claim { spot, ttl_ms, block_ms }),
            3 => (0usize..1_000).prop_map(|grant| Step::Release { grant }),
            2 => (0usize..1_000, ttl.clone()).prop_map(|(grant, ttl_ms)| Step::Renew { grant, ttl_ms }),
            1 => (spots.clone(), ttl.clone()).prop_map(|(spot, ttl_ms)| Step::Steal { spot, ttl_ms }),
            1 => spots.clone().prop_map(|spot| Step::Delete { spot }),
            1 => (-1..DBS as i32).prop_map(|db| Step::FlushDb { db }),
            1 => (spots, prop::option::of(ttl)).prop_map(|(spot, ttl_ms)| Step::Expire { spot, ttl_ms }),
            2 => (0usize..1_000).prop_map(|waiter| Step::Leave { waiter }),
            4 => (1..30i64).prop_map(|ms| Step::Sleep { ms }),
            1 => (-50..50i64).prop_map(|ms| Step::Jump { ms }),
        ],
        1..120,
    )
}

#[derive(Clone, Debug)]
struct Held {
    fence: u64,
    expires_at_ms: Option<i64>,
}

/// Somebody who waits, as the model sees it.
#[derive(Clone, Debug)]
struct Expected {
    id: WaiterId,
    until_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct World {
    waiting: Waiting,
    fences: Fences,
    keyspace: BTreeMap<Spot, Held>,
    queues: BTreeMap<Spot, Vec<Expected>>,
    /// All grants, and those that somebody has given up, lost or outlived.
    grants: Vec<(Spot, u64)>,
    over: HashSet<u64>,
    handles: usize,
    /// How each wait ended, by handle: once.
    ends: HashMap<usize, &'static str>,
    monotonic_ms: i64,
    unix_ms: i64,
}

impl World {
    fn is_live(&self, held: &Held) -> bool {
        held.expires_at_ms.is_none_or(|at_ms| at_ms >= self.unix_ms)
    }

    /// The lock under a key; one past its deadline goes, as at any look at it.
    fn look(&mut self, spot: &Spot) -> Option<Held> {
        let held = self.keyspace.get(spot)?.clone();
        if self.is_live(&held) {
            return Some(held);
        }
        self.remove(spot);
        None
    }

    fn remove(&mut self, spot: &Spot) {
        if let Some(held) = self.keyspace.remove(spot) {
            self.over.insert(held.fence);
            self.waiting.mark(spot.0, &spot.1);
        }
    }

    fn grant(&mut self, spot: &Spot, ttl_ms: i64) {
        let fence = self.fences.next(self.unix_ms as u64 * 1_000).expect("a fence");
        let last = self.grants.iter().map(|(_, fence)| *fence).max().unwrap_or(0);
        assert!(fence > last, "fences rise");
        for (other, owner) in &self.grants {
            assert!(other != spot || self.over.contains(owner), "two owners of {spot:?}");
        }
        let expires_at_ms = self.unix_ms + ttl_ms;
        self.keyspace.insert(spot.clone(), Held { fence, expires_at_ms: Some(expires_at_ms) });
        self.grants.push((spot.clone(), fence));
        self.waiting.set_wake(spot.0, &spot.1, Some(expires_at_ms + 1));
    }

    /// Grants the key to the first who waits, if it is free. What `changes::wake::serve` does.
    fn serve(&mut self, spot: &Spot) {
        if let Some(held) = self.look(spot) {
            self.waiting.set_wake(spot.0, &spot.1, held.expires_at_ms.map(|at_ms| at_ms + 1));
            return;
        }
        self.hand_on(spot);
    }

    fn hand_on(&mut self, spot: &Spot) -> bool {
        let Some((id, waiter)) = self.waiting.head(spot.0, &spot.1) else { return false };
        let ttl_ms = waiter.wish.ttl_ms;
        let expected = self.queues.get_mut(spot).expect("a queue").remove(0);
        assert_eq!(id, expected.id, "first come, first served");
        if let Some(held) = self.keyspace.remove(spot) {
            self.over.insert(held.fence);
        }
        self.grant(spot, ttl_ms);
        let waiter = self.waiting.leave(id).expect("it waited");
        self.end(waiter.handle.addr(), "granted");
        true
    }

    fn end(&mut self, handle: usize, how: &'static str) {
        assert_eq!(self.ends.insert(handle, how), None, "one end for each wait");
    }

    fn leave(&mut self, spot: &Spot, index: usize, how: &'static str) {
        let expected = self.queues.get_mut(spot).expect("a queue").remove(index);
        let waiter = self.waiting.leave(expected.id).expect("it waited");
        assert_eq!((waiter.db, &*waiter.key), (spot.0, &*spot.1));
        assert!(self.waiting.leave(expected.id).is_none());
        assert!(self.waiting.by_handle(waiter.handle.addr()).is_none());
        self.end(waiter.handle.addr(), how);
    }

    /// What the timer does.
    fn tick(&mut self) {
        self.waiting.mark_lapsed(self.unix_ms, 1_000);
        while let Some((db, key)) = self.waiting.take_dirty() {
            self.serve(&(db, key.to_vec()));
        }
        // The patrol, over everything.
        for (db, key) in self.waiting.around(None, usize::MAX, usize::MAX) {
            self.serve(&(db, key.to_vec()));
        }
        while let Some(id) = self.waiting.ended(self.monotonic_ms) {
            let (spot, index) = self.find(id);
            self.leave(&spot, index, "timed out");
        }
    }

    fn find(&self, id: WaiterId) -> (Spot, usize) {
        let found = self.queues.iter().find_map(|(spot, queue)| {
            let index = queue.iter().position(|expected| expected.id == id)?;
            Some((spot.clone(), index))
        });
        found.expect("somebody who waits")
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Claim { spot: number, ttl_ms, block_ms } => {
                let spot = spot(number);
                if self.waiting.has(spot.0, &spot.1) {
                    self.serve(&spot);
                }
                match (self.look(&spot), block_ms) {
                    (None, _) => {
                        assert!(self.queues.get(&spot).is_none_or(Vec::is_empty), "a newcomer comes behind");
                        self.grant(&spot, ttl_ms);
                    }
                    (Some(_), None) => {}
                    (Some(held), Some(block_ms)) => self.wait(&spot, ttl_ms, block_ms, &held),
                }
            }
            Step::Release { grant } => {
                let Some((spot, fence)) = self.some_grant(grant) else { return };
                if self.look(&spot).is_some_and(|held| held.fence == fence) && !self.hand_on(&spot) {
                    self.remove(&spot);
                }
            }
            Step::Renew { grant, ttl_ms } => {
                let Some((spot, fence)) = self.some_grant(grant) else { return };
                if self.look(&spot).is_some_and(|held| held.fence == fence) {
                    let expires_at_ms = self.unix_ms + ttl_ms;
                    self.keyspace.insert(spot.clone(), Held { fence, expires_at_ms: Some(expires_at_ms) });
                    self.waiting.set_wake(spot.0, &spot.1, Some(expires_at_ms + 1));
                }
            }
            Step::Steal { spot: number, ttl_ms } => {
                let spot = spot(number);
                if let Some(held) = self.keyspace.remove(&spot) {
                    self.over.insert(held.fence);
                }
                self.grant(&spot, ttl_ms);
            }
            Step::Delete { spot: number } => self.remove(&spot(number)),
            Step::FlushDb { db } => {
                let spots: Vec<Spot> = self.keyspace.keys().filter(|(at, _)| db < 0 || *at == db).cloned().collect();
                for spot in spots {
                    let held = self.keyspace.remove(&spot).expect("a lock");
                    self.over.insert(held.fence);
                }
                let any = self.waiting.mark_db(db);
                let waits = |(spot, queue): (&Spot, &Vec<Expected>)| (db < 0 || spot.0 == db) && !queue.is_empty();
                assert_eq!(any, self.queues.iter().any(waits));
            }
            Step::Expire { spot: number, ttl_ms } => {
                let spot = spot(number);
                if let Some(held) = self.look(&spot) {
                    let expires_at_ms = ttl_ms.map(|ms| self.unix_ms + ms);
                    self.keyspace.insert(spot, Held { expires_at_ms, ..held });
                }
            }
            Step::Leave { waiter } => {
                let everybody = self.waiting.everybody();
                if let Some(id) = everybody.get(waiter % everybody.len().max(1)) {
                    let (spot, index) = self.find(*id);
                    self.leave(&spot, index, "left");
                }
            }
            Step::Sleep { ms } => {
                self.monotonic_ms += ms;
                self.unix_ms += ms;
            }
            Step::Jump { ms } => self.unix_ms += ms,
        }
    }

    fn some_grant(&self, number: usize) -> Option<(Spot, u64)> {
        // The last ones more often than not: they are the ones that live.
        let from_end = number % self.grants.len().clamp(1, 8);
        self.grants.iter().rev().nth(from_end).cloned()
    }

    fn wait(&mut self, spot: &Spot, ttl_ms: i64, block_ms: i64, held: &Held) {
        self.handles += 1;
        let until_ms = (block_ms > 0).then(|| self.monotonic_ms + block_ms);
        let wish =
            Wish { token: None, holder: Box::default(), ttl_ms, linger_ms: None, connection_id: None, user: None };
        let id = self.waiting.join(spot.0, &spot.1, wish, Handle::numbered(self.handles), until_ms);
        self.waiting.set_wake(spot.0, &spot.1, held.expires_at_ms.map(|at_ms| at_ms + 1));
        self.queues.entry(spot.clone()).or_default().push(Expected { id, until_ms });
    }

    /// The queue and the model agree in all that can be asked.
    fn check(&self) {
        let total: usize = self.queues.values().map(Vec::len).sum();
        assert_eq!(self.waiting.total(), total);
        assert_eq!(self.waiting.is_empty(), total == 0);
        for number in 0..KEYS * DBS {
            let spot = spot(number);
            let queue = self.queues.get(&spot).cloned().unwrap_or_default();
            let ids: Vec<WaiterId> = queue.iter().map(|expected| expected.id).collect();
            assert_eq!(self.waiting.everybody_at(spot.0, &spot.1), ids);
            assert_eq!(self.waiting.count(spot.0, &spot.1), ids.len());
            assert_eq!(self.waiting.has(spot.0, &spot.1), !ids.is_empty());
            assert_eq!(self.waiting.head(spot.0, &spot.1).map(|(id, _)| id), ids.first().copied());
        }
        assert_eq!(self.ends.len() + total, self.handles, "nobody forgotten");
    }

    /// After a tick nobody waits for a free key or beyond its time, and the timer knows when to look again.
    fn check_after_tick(&mut self) {
        for (spot, queue) in &self.queues {
            let Some(first) = queue.first() else { continue };
            let held = self.keyspace.get(spot).unwrap_or_else(|| panic!("{first:?} waits for the free {spot:?}"));
            assert!(self.is_live(held));
            assert!(queue.iter().all(|expected| expected.until_ms.is_none_or(|until| until > self.monotonic_ms)));
        }
        let waits = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let due = waits
            .flat_map(|(spot, queue)| {
                let lapse = self.keyspace.get(spot).and_then(|held| held.expires_at_ms).map(|at| at + 1 - self.unix_ms);
                let ends = queue.iter().filter_map(|expected| Some(expected.until_ms? - self.monotonic_ms));
                lapse.into_iter().chain(ends)
            })
            .min();
        assert_eq!(self.waiting.due_in_ms(self.monotonic_ms, self.unix_ms), due.map(|ms| ms.max(0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_queue_does_what_plain_lists_do(steps in steps()) {
        let mut world = World { monotonic_ms: 5, unix_ms: 1_000_000, ..World::default() };
        for step in steps {
            world.run(step);
            world.check();
            world.tick();
            world.check();
            world.check_after_tick();
        }
        // In the end everybody is served, one after the other, or gives up.
        for (spot, _) in world.keyspace.clone() {
            if let Some(held) = world.keyspace.get_mut(&spot)
                && held.expires_at_ms.is_none()
            {
                held.expires_at_ms = Some(world.unix_ms);
            }
        }
        for _ in 0..=world.handles {
            world.unix_ms += 200;
            world.tick();
        }
        world.check();
        prop_assert!(world.waiting.is_empty());
        prop_assert_eq!(world.ends.len(), world.handles);
    }

    /// The patrol looks at every queue within a round, and at none twice, so many keys or bytes at a time.
    #[test]
    fn the_patrol_comes_around(
        keys in prop::collection::btree_set((0i32..3, 0u8..40), 1..60),
        count in 1usize..20,
        bytes in 0usize..20,
    ) {
        let mut waiting = Waiting::default();
        for (handle, (db, key)) in keys.iter().enumerate() {
            let wish = Wish { token: None, holder: Box::default(), ttl_ms: 1, linger_ms: None, connection_id: None, user: None };
            waiting.join(*db, &[*key], wish, Handle::numbered(handle), None);
        }
        let mut place: Option<Place> = None;
        let mut seen = Vec::new();
        while seen.len() < keys.len() {
            let places = waiting.around(place.as_ref(), count, bytes);
            // Each name has one byte.
            prop_assert_eq!(places.len(), count.min(keys.len()).min(bytes.max(1)));
            place = places.last().cloned();
            seen.extend(places);
        }
        seen.truncate(keys.len());
        seen.sort();
        let all: Vec<Place> = keys.iter().map(|(db, key)| (*db, Arc::from([*key]))).collect();
        prop_assert_eq!(seen, all);
    }
}

/// Names can have many megabytes: they go with the last who waits for them, also if others wait on.
#[test]
fn no_name_is_kept_that_nobody_waits_for() {
    let mut waiting = Waiting::default();
    let wish =
        || Wish { token: None, holder: Box::default(), ttl_ms: 1, linger_ms: None, connection_id: None, user: None };
    waiting.join(0, b"other", wish(), Handle::numbered(1), None);
    let id = waiting.join(0, b"k", wish(), Handle::numbered(2), None);
    waiting.suspect(0, b"k");
    let key = waiting.leave(id).expect("it waits").key;
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn a_twin_is_found_by_key_and_token() {
    let mut waiting = Waiting::default();
    let wish = |token: &[u8]| Wish {
        token: Some(token.into()),
        holder: Box::default(),
        ttl_ms: 1,
        linger_ms: None,
        connection_id: None,
        user: None,
    };
    let first = waiting.join(0, b"k", wish(b"t"), Handle::numbered(1), None);
    let second = waiting.join(0, b"k", wish(b"t"), Handle::numbered(2), None);
    waiting.join(0, b"k", wish(b"u"), Handle::numbered(3), None);
    waiting.join(1, b"k", wish(b"t"), Handle::numbered(4), None);
    assert_eq!(waiting.twin(0, b"k", b"t"), Some(first));
    waiting.leave(first);
    assert_eq!(waiting.twin(0, b"k", b"t"), Some(second));
    waiting.leave(second);
    assert_eq!(waiting.twin(0, b"k", b"t"), None);
    assert!(waiting.twin(1, b"k", b"t").is_some());
}

fn anybody() -> Wish {
    Wish { token: None, holder: Box::default(), ttl_ms: 1, linger_ms: None, connection_id: None, user: None }
}

fn named(waiting: &mut Waiting) -> Vec<(i32, Vec<u8>)> {
    let mut all: Vec<_> = std::iter::from_fn(|| waiting.take_named()).map(|(db, key)| (db, key.to_vec())).collect();
    all.sort();
    all
}

#[test]
fn a_key_that_a_command_names_is_to_be_looked_at_in_every_database_that_awaits_it() {
    let mut waiting = Waiting::default();
    for (handle, (db, key)) in [(0, "k"), (2, "k"), (0, "l")].into_iter().enumerate() {
        waiting.join(db, key.as_bytes(), anybody(), Handle::numbered(handle), None);
    }
    assert!(!waiting.has_named() && !waiting.name(b"m") && !waiting.name_again());
    // Named twice before it is looked at, it is looked at once.
    assert!(waiting.may_have(b"k") && waiting.name(b"k") && waiting.name(b"k") && waiting.has_named());
    assert_eq!(waiting.due_in_ms(0, 0), Some(0));
    assert_eq!(named(&mut waiting), [(0, b"k".to_vec()), (2, b"k".to_vec())]);
    // A transaction that comes later may hold that command.
    assert!(!waiting.has_named() && waiting.name_again());
    assert_eq!(named(&mut waiting), [(0, b"k".to_vec()), (2, b"k".to_vec())]);
    // But not what nobody waits for any more.
    let gone: Vec<WaiterId> = waiting.everybody_at(0, b"k");
    gone.into_iter().for_each(|id| drop(waiting.leave(id)));
    assert!(waiting.name_again());
    assert_eq!(named(&mut waiting), [(2, b"k".to_vec())]);
    waiting.everybody().into_iter().for_each(|id| drop(waiting.leave(id)));
    assert!(!waiting.may_have(b"k") && !waiting.name(b"k") && !waiting.name_again());
}

/// Of the keys that commands have named, so many are remembered for a transaction, the last ones.
#[test]
fn the_last_named_keys_are_remembered_for_a_transaction() {
    let mut waiting = Waiting::default();
    let key = |number: usize| format!("k{number}");
    for number in 0..LATELY_MAX + 10 {
        waiting.join(0, key(number).as_bytes(), anybody(), Handle::numbered(number), None);
    }
    for number in 0..LATELY_MAX + 10 {
        assert!(waiting.name(key(number).as_bytes()));
    }
    assert_eq!(named(&mut waiting).len(), LATELY_MAX + 10);
    assert!(waiting.name_again());
    let mut last: Vec<_> = (10..LATELY_MAX + 10).map(|number| (0, key(number).into_bytes())).collect();
    last.sort();
    assert_eq!(named(&mut waiting), last);
    // What has fallen off is remembered when it is named again.
    assert!(waiting.name(b"k0"));
    waiting.take_named();
    assert!(waiting.name_again() && named(&mut waiting).contains(&(0, b"k0".to_vec())));
}
