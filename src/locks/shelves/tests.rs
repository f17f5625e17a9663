//! The set beside a sorted list, over keys that begin alike, are each other's beginnings, or are equal.

use proptest::prelude::*;

use super::*;
use crate::locks::lock::Grant;

fn lock(key: &[u8], holder: &[u8]) -> Lock {
    let grant =
        Grant { token: b"t", holder, fence: 1, claimed_at_ms: 0, renewed_at_ms: 0, renewals: 0, linger_ms: None };
    Lock::new(key, &grant)
}

/// The rank without the tricks: what the ranks' bytes have to be ordered like.
trait Plain: Order {
    fn plain(lock: &Lock) -> (&[u8], &[u8]);
}

impl Plain for ByKey {
    fn plain(lock: &Lock) -> (&[u8], &[u8]) {
        (b"", lock.key())
    }
}

impl Plain for ByHolder {
    fn plain(lock: &Lock) -> (&[u8], &[u8]) {
        (lock.holder(), lock.key())
    }
}

/// A set, and the list of what should be in it.
struct Pair<O> {
    set: Shelves<O>,
    list: Vec<Lock>,
}

impl<O: Plain> Pair<O> {
    fn new(mut locks: Vec<Lock>) -> Self {
        locks.sort_by(|a, b| O::plain(a).cmp(&O::plain(b)));
        Self { set: Shelves::filled(locks.clone()), list: locks }
    }

    fn insert(&mut self, lock: Lock) {
        let at = self.list.partition_point(|other| O::plain(other) <= O::plain(&lock));
        self.list.insert(at, lock.clone());
        self.set.insert(lock);
    }

    fn remove_at(&mut self, at: usize) {
        let lock = self.list.remove(at);
        self.set.remove(&lock);
        // No harm in a second time.
        self.set.remove(&lock);
    }

    fn check(&self) {
        let found: Vec<&Lock> = self.set.range(Unbounded).collect();
        assert_eq!(found.len(), self.list.len());
        assert!(found.iter().zip(&self.list).all(|(a, b)| a.is(b)));
        self.check_shelves();
    }

    /// What the search relies on.
    fn check_shelves(&self) {
        let labels: Vec<&[u8]> = self.set.shelves.keys().map(|label| &**label).collect();
        assert!(labels.first().is_none_or(|label| label.is_empty()));
        for (number, shelf) in self.set.shelves.values().enumerate() {
            let next = labels.get(number + 1);
            assert!(shelf.sure() <= next.map_or(0, |next| common(labels[number], next)));
            assert!(shelf.heads.is_empty() || shelf.heads.len() == shelf.locks.len());
            for (at, lock) in shelf.locks.iter().enumerate() {
                let mut room = Bytes::new();
                let rank = O::rank(lock, &mut room);
                assert!(rank >= labels[number] && next.is_none_or(|next| rank < *next));
                assert!(shelf.heads.get(at).is_none_or(|head| *head == head_of(rank, shelf.skip)));
                assert!(shelf.checked.is_empty() || rank[shelf.sure()..].starts_with(&shelf.checked));
            }
        }
    }

    fn check_range(&self, probe: &Lock) {
        let mut room = Bytes::new();
        let rank = O::rank(probe, &mut room);
        let from = self.list.partition_point(|lock| O::plain(lock) < O::plain(probe));
        let behind = self.list.partition_point(|lock| O::plain(lock) <= O::plain(probe));
        for (bound, start) in [(Included(rank), from), (Excluded(rank), behind)] {
            let found: Vec<&Lock> = self.set.range(bound).collect();
            assert_eq!(found.len(), self.list.len() - start);
            assert!(found.iter().zip(&self.list[start..]).all(|(a, b)| a.is(b)));
        }
    }

    /// How much more there is than what lies on the shelves.
    fn check_waste(&self) {
        let places: usize = self.set.shelves.values().map(|shelf| shelf.locks.capacity()).sum();
        let shelves = self.set.shelves.len();
        assert!(places <= self.list.len() + STEP * 2 * shelves, "{places} places for {} locks", self.list.len());
        // Two neighbours that have room for each other are few: the larger ones are at least half full on average.
        assert!(shelves <= 2 + self.list.len() / 16, "{shelves} shelves for {} locks", self.list.len());
    }
}

/// Few different bytes, the ends of the range among them, so that parts begin alike and are each other's beginnings.
fn part(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(255)], len)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..3_000u32).prop_map(|number| format!("lock:{number}").into_bytes()),
        2 => (0..3_000u32).prop_map(|number| format!("another:{number:08}").into_bytes()),
        2 => part(0..9),
        1 => Just(b"the same".to_vec()),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// Locks under these names, of this holder.
    Insert(Vec<Vec<u8>>, Vec<u8>),
    /// So many, each at this part of the whole.
    Remove(usize, u16),
    /// Keys in order, as from a counter.
    Count(u16, u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (prop::collection::vec(name(), 1..400), part(0..4)).prop_map(|(names, holder)| Step::Insert(names, holder)),
        3 => (1..600usize, any::<u16>()).prop_map(|(count, at)| Step::Remove(count, at)),
        1 => (any::<u16>(), 1..300u16).prop_map(|(from, count)| Step::Count(from, count)),
    ]
}

fn run<O: Plain>(first: Vec<Lock>, steps: &[Step], probes: &[(Vec<u8>, Vec<u8>)]) {
    let mut pair: Pair<O> = Pair::new(first);
    pair.check();
    for step in steps {
        match step {
            Step::Insert(names, holder) => names.iter().for_each(|name| pair.insert(lock(name, holder))),
            Step::Remove(count, at) => {
                for number in 0..*count {
                    if pair.list.is_empty() {
                        break;
                    }
                    // Some near each other, some not.
                    let place = usize::from(*at) * 7 + number * if at % 2 == 0 { 1 } else { 977 };
                    pair.remove_at(place % pair.list.len());
                }
            }
            Step::Count(from, count) => (*from..from.saturating_add(*count))
                .for_each(|number| pair.insert(lock(format!("lock:{number:06}").as_bytes(), b"a"))),
        }
        pair.check();
        for (key, holder) in probes {
            pair.check_range(&lock(key, holder));
        }
    }
    let mut locks = pair.list.clone();
    assert!(std::mem::take(&mut pair.set).into_locks().zip(locks.drain(..)).all(|(a, b)| a.is(&b)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_set_is_a_sorted_list(
        first in prop::collection::vec((name(), part(0..3)), 0..400),
        steps in prop::collection::vec(step(), 1..12),
        probes in prop::collection::vec((name(), part(0..4)), 2),
    ) {
        let first: Vec<Lock> = first.iter().map(|(name, holder)| lock(name, holder)).collect();
        run::<ByKey>(first.clone(), &steps, &probes);
        run::<ByHolder>(first, &steps, &probes);
    }

    #[test]
    fn ranks_by_holder_are_ordered_as_holders_and_then_keys(
        a in (part(0..5), part(0..3)), b in (part(0..5), part(0..3)),
    ) {
        let (mut left, mut right) = (Bytes::new(), Bytes::new());
        by_holder(&a.0, &a.1, &mut left);
        by_holder(&b.0, &b.1, &mut right);
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        prop_assert_eq!(ByHolder::compare(&lock(&a.1, &a.0), &right), a.cmp(&b));
        // Any bytes, as in a label: cut off a rank.
        let cut = &right[..right.len() / 2];
        prop_assert_eq!(ByHolder::compare(&lock(&a.1, &a.0), cut), left[..].cmp(cut));
    }
}

/// 5,000 locks in an order that is none.
fn scattered() -> impl Iterator<Item = Lock> {
    (0..5_000usize).map(|number| lock(format!("lock:{:05}", number * 1_877 % 5_000).as_bytes(), b"worker"))
}

#[test]
fn what_comes_and_goes_in_any_order_leaves_little_behind() {
    for by_ones in [true, false] {
        let mut pair: Pair<ByKey> = Pair::new(if by_ones { Vec::new() } else { scattered().collect() });
        if by_ones {
            scattered().for_each(|lock| pair.insert(lock));
        }
        pair.check();
        pair.check_waste();
        while !pair.list.is_empty() {
            pair.remove_at(pair.list.len() * 577 % 7_919 % pair.list.len());
            if pair.list.len().is_multiple_of(250) {
                pair.check();
                pair.check_waste();
            }
        }
        assert_eq!(pair.set.shelves.len(), 1);
    }
}

/// How many locks there are whose head is that of their neighbour, so that a search has to look at them.
fn doubtful<O: Plain>(pair: &Pair<O>) -> usize {
    pair.set.shelves.values().map(|shelf| shelf.heads.windows(2).filter(|two| two[0] == two[1]).count()).sum()
}

#[test]
fn heads_tell_apart_what_begins_alike() {
    // On the only shelf, which no label bounds.
    let mut one: Pair<ByKey> = Pair::new(Vec::new());
    for number in 0..100 {
        one.insert(lock(format!("a:name:that:all:of:them:begin:with:{:03}", number * 37 % 100).as_bytes(), b""));
    }
    one.check();
    assert_eq!((one.set.shelves.len(), doubtful(&one)), (1, 0));
    // One that begins otherwise at each end, and both gone again.
    for name in [&b"a:na"[..], b"b"] {
        one.insert(lock(name, b""));
        one.check();
    }
    one.remove_at(one.list.len() - 1);
    one.remove_at(0);
    one.check();
    // Holders of as many locks as fill a few shelves: nearly all of them get shelves of their own.
    let mut many: Pair<ByHolder> = Pair::new(Vec::new());
    for number in 0..6_000usize {
        let number = number * 1_877 % 6_000;
        let (key, holder) = (format!("lock:{number:05}"), format!("app:worker-{:02}", number % 20));
        many.insert(lock(key.as_bytes(), holder.as_bytes()));
    }
    many.check();
    many.check_waste();
    assert!(doubtful(&many) < 600, "{}", doubtful(&many));
}

/// No division tells them apart: they stay together, and every one of them is found.
#[test]
fn many_of_one_key_stay_on_one_shelf() {
    let mut pair: Pair<ByKey> = Pair::new(Vec::new());
    for _ in 0..MOST * 2 {
        pair.insert(lock(b"k", b""));
    }
    pair.insert(lock(b"j", b""));
    pair.insert(lock(b"l", b""));
    pair.check();
    assert!(pair.set.shelves.len() > 1);
    let filled: Pair<ByKey> = Pair::new(pair.list.clone());
    filled.check();
    while !pair.list.is_empty() {
        pair.remove_at(pair.list.len() / 2);
    }
    pair.check();
}
