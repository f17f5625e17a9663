//! The registry beside a naive model of the keyspace: after every step both know the same locks under the same names.
//!
//! A step may change hundreds of locks, so that the sets settle and bury in the middle of it, at every size.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::locks::lock::Grant;

const DBS: i32 = 3;

/// What a server does to locks, many at a time: `from` is the first of `count` names.
#[derive(Clone, Debug)]
enum Step {
    /// A grant, over whatever lies there.
    Claim {
        db: i32,
        from: u16,
        count: u16,
        holder: u8,
    },
    /// A release: the module deletes the key itself.
    Release {
        db: i32,
        from: u16,
        count: u16,
    },
    /// DEL, or an expiry.
    Delete {
        db: i32,
        from: u16,
        count: u16,
    },
    /// RENAME or MOVE: the name goes, the lock does not, and nobody says where it is.
    Move {
        db: i32,
        from: u16,
        count: u16,
        to: i32,
    },
    /// RESTORE: loaded, and perhaps freed at once.
    Restore {
        db: i32,
        from: u16,
        count: u16,
        lives: bool,
    },
    /// The first command that names them, after `Move` or `Restore`.
    Find {
        db: i32,
        from: u16,
        count: u16,
    },
    /// LIST or REVOKE finds all.
    FindAll,
    /// The end of an RDB or AOF.
    LoadEnds,
    Swap {
        a: i32,
        b: i32,
    },
    /// FLUSHDB, FLUSHALL; `late` is a background thread that has not yet freed anything.
    Flush {
        db: i32,
        late: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let db = 0..DBS;
    let names = (0..1_500u16, prop_oneof![8 => 1..8u16, 2 => 50..200u16, 1 => 500..700u16]);
    prop_oneof![
        8 => (db.clone(), names.clone(), 0..4u8)
            .prop_map(|(db, (from, count), holder)| Step::Claim { db, from, count, holder }),
        3 => (db.clone(), names.clone()).prop_map(|(db, (from, count))| Step::Release { db, from, count }),
        3 => (db.clone(), names.clone()).prop_map(|(db, (from, count))| Step::Delete { db, from, count }),
        2 => (db.clone(), names.clone(), 0..DBS)
            .prop_map(|(db, (from, count), to)| Step::Move { db, from, count, to }),
        2 => (db.clone(), names.clone(), any::<bool>())
            .prop_map(|(db, (from, count), lives)| Step::Restore { db, from, count, lives }),
        2 => (db.clone(), names).prop_map(|(db, (from, count))| Step::Find { db, from, count }),
        1 => Just(Step::FindAll),
        1 => Just(Step::LoadEnds),
        1 => (db.clone(), db).prop_map(|(a, b)| Step::Swap { a, b }),
        1 => (-1..DBS, any::<bool>()).prop_map(|(db, late)| Step::Flush { db, late }),
    ]
}

type Keys = BTreeMap<Vec<u8>, Lock>;

/// The registry, and a keyspace that does to it what the server does.
#[derive(Default)]
struct Pair {
    registry: Registry,
    keyspace: [Keys; DBS as usize],
    fence: u64,
    /// Values that are flushed and not yet freed.
    late: Vec<Lock>,
}

fn name(number: u16) -> Vec<u8> {
    // Several lengths and common heads: "k7" comes after "k1000".
    format!("k{number}").into_bytes()
}

impl Pair {
    fn at(&mut self, db: i32) -> &mut Keys {
        &mut self.keyspace[usize::try_from(db).expect("a database")]
    }

    fn make(&mut self, key: &[u8], holder: u8) -> Lock {
        self.fence += 1;
        let holder = vec![b'h'; usize::from(holder)];
        Lock::new(
            key,
            &Grant {
                token: b"token",
                holder: &holder,
                fence: self.fence,
                claimed_at_ms: 0,
                renewed_at_ms: 0,
                renewals: 0,
                linger_ms: None,
            },
        )
    }

    /// A value is overwritten or deleted by the server, which calls `unlink` and `free`.
    fn unlink(&mut self, db: i32, key: &[u8]) {
        if let Some(old) = self.at(db).remove(key) {
            self.registry.note_unlinked(db, &old);
            old.set_gone();
        }
    }

    /// A command names this key.
    fn find(&mut self, db: i32, key: &[u8]) {
        let Some(found) = self.at(db).get(key).cloned() else { return };
        if Registry::is_registered(&found) {
            return;
        }
        let lock = found.renamed(key);
        self.at(db).insert(key.to_vec(), lock.clone());
        found.set_gone();
        self.registry.add(db, &lock);
    }

    fn find_all(&mut self) {
        if self.registry.at_large().is_empty() {
            return;
        }
        for db in 0..DBS {
            for key in self.at(db).keys().cloned().collect::<Vec<_>>() {
                self.find(db, &key);
            }
        }
        self.registry.forget_adrift();
    }

    fn run(&mut self, step: &Step) {
        let names = |from: u16, count: u16| (from..from + count).map(name);
        match *step {
            Step::Claim { db, from, count, holder } => {
                for key in names(from, count) {
                    // As in `changes::grant::store`: the module replaces the value itself.
                    self.find(db, &key);
                    let lock = self.make(&key, holder);
                    if let Some(old) = self.at(db).insert(key, lock.clone()) {
                        old.set_gone();
                        self.registry.remove(db, &old);
                    }
                    self.registry.add(db, &lock);
                }
            }
            Step::Release { db, from, count } => {
                for key in names(from, count) {
                    self.find(db, &key);
                    if let Some(old) = self.at(db).remove(&key) {
                        old.set_gone();
                        self.registry.remove(db, &old);
                    }
                }
            }
            Step::Delete { db, from, count } => names(from, count).for_each(|key| self.unlink(db, &key)),
            Step::Move { db, from, count, to } => {
                for (number, key) in (from..).zip(names(from, count)) {
                    let target = name(number % 700);
                    if (db, &key) == (to, &target) {
                        continue;
                    }
                    let Some(lock) = self.at(db).remove(&key) else { continue };
                    self.registry.note_unlinked(db, &lock);
                    self.unlink(to, &target);
                    self.at(to).insert(target, lock);
                }
            }
            Step::Restore { db, from, count, lives } => {
                for key in names(from, count) {
                    let lock = self.make(&key, 1);
                    self.registry.note_loaded(db, &lock, lock.key(), lock.holder());
                    if lives {
                        self.unlink(db, &key);
                        self.at(db).insert(key, lock);
                    } else {
                        lock.set_gone();
                    }
                }
            }
            Step::Find { db, from, count } => names(from, count).for_each(|key| self.find(db, &key)),
            Step::FindAll => self.find_all(),
            Step::LoadEnds => self.registry.settle_loaded(),
            Step::Swap { a, b } => {
                self.registry.swap(a, b);
                self.keyspace.swap(a as usize, b as usize);
            }
            Step::Flush { db, late } => {
                // As in `server::events`: renamed locks of unknown place are looked for, if only some of all are flushed.
                for (at, keys) in (0..).zip(&self.keyspace) {
                    if db == at {
                        keys.values()
                            .filter(|lock| !Registry::is_registered(lock) && !Registry::is_unseen(lock))
                            .for_each(Lock::set_gone);
                    }
                }
                let before = self.registry.total();
                let unlinked = self.registry.unlinked_at_large();
                let gone = self.registry.clear(db).count;
                let lost = unlinked - self.registry.unlinked_at_large();
                assert_eq!(before - self.registry.total(), gone + lost);
                for (at, keys) in (0..).zip(&mut self.keyspace) {
                    if db < 0 || db == at {
                        self.late.extend(std::mem::take(keys).into_values());
                    }
                }
                if !late {
                    self.late.drain(..).for_each(|lock| lock.set_gone());
                }
            }
        }
    }

    fn check(&mut self, walks: &[(bool, bool, bool, u16, u8)]) {
        let held: usize = self.keyspace.iter().map(BTreeMap::len).sum();
        assert_eq!(self.registry.total(), held);
        self.find_all();
        assert_eq!(self.registry.registered(), held);
        for db in 0..DBS {
            let keys = self.at(db).clone();
            assert_eq!(self.registry.len(db), keys.len());
            for &(by_head, by_after, by_holder, number, holder) in walks {
                let (head, after) = (format!("k{}", number % 30), name(number));
                let holder = vec![b'h'; usize::from(holder)];
                let walk = Walk {
                    after: by_after.then_some(&after),
                    head: if by_head { head.as_bytes() } else { b"" },
                    holder: by_holder.then_some(&holder),
                };
                let count = if number % 2 == 0 { usize::MAX } else { usize::from(number % 50) };
                let due: Vec<u64> = keys
                    .values()
                    .filter(|lock| walk.after.is_none_or(|after| lock.key() > after))
                    .filter(|lock| lock.key().starts_with(walk.head))
                    .filter(|lock| walk.holder.is_none_or(|holder| lock.holder() == holder))
                    .take(count)
                    .map(Lock::fence)
                    .collect();
                let found: Vec<u64> = self.registry.walk(db, &walk, count).iter().map(Lock::fence).collect();
                assert_eq!(found, due, "{walk:?} {count}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_registry_knows_what_the_keyspace_holds(
        steps in prop::collection::vec(step(), 1..60),
        walks in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0..1_500u16, 0..4u8), 3),
        every in 1..8usize,
    ) {
        let mut pair = Pair::default();
        for (number, step) in steps.iter().enumerate() {
            pair.run(step);
            if number % every == 0 {
                pair.check(&walks);
            }
        }
        pair.check(&walks);
    }
}

fn pair_with(count: u16) -> Pair {
    let mut pair = Pair::default();
    pair.run(&Step::Claim { db: 0, from: 0, count, holder: 1 });
    pair
}

const WALKS: &[(bool, bool, bool, u16, u8)] =
    &[(false, false, false, 0, 0), (true, true, false, 12, 0), (false, true, true, 101, 1)];

#[test]
fn every_size_around_the_bounds_settles_and_buries() {
    for count in [1, 63, 64, 65, 511, 512, 513, 514, 576, 577, 1_025] {
        for gone in [1, 63, 64, 65, 66, 128, 129, 130, count - 1, count] {
            if gone > count {
                continue;
            }
            let mut pair = pair_with(count);
            pair.check(&WALKS[..1]);
            pair.run(&Step::Delete { db: 0, from: count - gone, count: gone });
            pair.check(WALKS);
            pair.run(&Step::Claim { db: 0, from: 0, count, holder: 2 });
            pair.check(WALKS);
        }
    }
}

/// A lock read from the head of an AOF lies where a SWAPDB further down in the file puts it.
#[test]
fn what_was_loaded_moves_with_its_database() {
    let mut pair = Pair::default();
    pair.run(&Step::Restore { db: 0, from: 0, count: 3, lives: true });
    pair.run(&Step::Swap { a: 0, b: 2 });
    pair.run(&Step::LoadEnds);
    assert_eq!(pair.registry.len(2), 3);
    pair.check(WALKS);
}

/// A value that a background thread frees later is no lock of the next data set.
#[test]
fn what_was_loaded_and_flushed_does_not_come_back() {
    for db in [-1, 0] {
        let mut pair = Pair::default();
        pair.run(&Step::Restore { db: 0, from: 0, count: 3, lives: true });
        pair.run(&Step::Flush { db, late: true });
        pair.run(&Step::LoadEnds);
        assert_eq!(pair.registry.total(), 0);
        pair.check(WALKS);
    }
}

#[test]
fn a_lock_of_another_database_or_none_is_not_removed() {
    let mut pair = pair_with(3);
    let lock = pair.at(0)[&name(1)].clone();
    pair.registry.remove(1, &lock);
    pair.registry.remove(-1, &lock);
    pair.registry.add(-1, &pair.keyspace[0][&name(1)].renamed(b"nowhere"));
    pair.registry.swap(-1, 0);
    pair.registry.clear(7);
    pair.check(WALKS);
}

#[test]
fn a_lock_renamed_again_and_again_is_one() {
    let mut pair = pair_with(600);
    for _ in 0..2 {
        // The oldest are settled by now, the newest are not.
        pair.run(&Step::Move { db: 0, from: 0, count: 3, to: 1 });
        pair.run(&Step::Move { db: 1, from: 0, count: 3, to: 0 });
        pair.run(&Step::Move { db: 0, from: 590, count: 3, to: 1 });
        pair.run(&Step::Move { db: 1, from: 590, count: 3, to: 0 });
        assert_eq!(pair.registry.total(), 600);
    }
    assert_eq!(pair.registry.unlinked_at_large(), 6);
    pair.check(WALKS);
}

#[test]
fn a_lock_restored_found_and_renamed_is_one() {
    let mut pair = Pair::default();
    pair.run(&Step::Restore { db: 0, from: 0, count: 3, lives: true });
    pair.run(&Step::Find { db: 0, from: 0, count: 3 });
    pair.run(&Step::Move { db: 0, from: 0, count: 3, to: 1 });
    assert_eq!(pair.registry.total(), 3);
    pair.check(WALKS);
}

/// What a replica finds where it can't register it yet is known until it goes, and not looked for again before it is renamed.
#[test]
fn what_was_located_is_known_until_it_goes() {
    for late in [false, true] {
        let mut pair = pair_with(3);
        pair.run(&Step::Move { db: 0, from: 0, count: 3, to: 1 });
        assert!(pair.registry.has_lost());
        let found = pair.at(1).clone();
        for (key, lock) in found.iter().chain(&found) {
            pair.registry.locate(1, key.clone(), lock);
        }
        assert!(!pair.registry.has_lost());
        pair.registry.forget_adrift();
        assert_eq!((pair.registry.total(), pair.registry.at_large().len()), (3, 3));
        pair.run(&Step::Swap { a: 1, b: 2 });
        let due: Vec<(i32, Vec<u8>)> = found.keys().map(|key| (2, key.clone())).collect();
        assert_eq!(pair.registry.located(), due);
        pair.run(&Step::Move { db: 2, from: 0, count: 1, to: 0 });
        assert!(pair.registry.has_lost());
        assert_eq!((pair.registry.total(), pair.registry.located().len()), (3, 2));
        pair.run(&Step::Flush { db: -1, late });
        assert_eq!((pair.registry.total(), pair.registry.located().len()), (0, 0));
        assert!(!pair.registry.has_lost());
        pair.check(WALKS);
    }
}
