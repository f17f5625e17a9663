//! Sorting very many locks at once, as after a load: most comparisons are settled by eight bytes that lie beside the
//! pointer, so that the locks themselves, which are scattered over the memory, are hardly looked at.

use std::cmp::Ordering;

use super::lock::Lock;

/// Bytes of a part that the abstract of it holds; the eighth tells how many there were.
const HEAD_BYTES: usize = 7;

/// The first bytes of a part behind what all parts have in common, zeros behind its end, and its length, up to one more
/// than the bytes. Abstracts are ordered as their parts; equal ones of short parts belong to equal parts.
fn abstract_of(rest: &[u8]) -> u64 {
    let mut bytes = [0; HEAD_BYTES + 1];
    for (to, from) in bytes.iter_mut().take(HEAD_BYTES).zip(rest) {
        *to = *from;
    }
    if let Some(last) = bytes.last_mut() {
        *last = rest.len().min(HEAD_BYTES + 1) as u8;
    }
    u64::from_be_bytes(bytes)
}

/// What all parts that were added begin with.
#[derive(Debug, Default)]
struct Common(Option<Vec<u8>>);

impl Common {
    fn add(&mut self, part: &[u8]) {
        match &mut self.0 {
            None => self.0 = Some(part.into()),
            // Nearly always so, and then compared in one go.
            Some(common) if part.starts_with(common) => {}
            Some(common) => {
                let same = common.iter().zip(part).take_while(|(a, b)| a == b).count();
                common.truncate(same);
            }
        }
    }

    /// The abstract of what follows. `None` for a part that was not added and begins otherwise.
    fn behind(&self, part: &[u8]) -> Option<u64> {
        part.strip_prefix(self.0.as_deref().unwrap_or_default()).map(abstract_of)
    }
}

/// What the keys of many locks, and their holders, begin with. Noted for each when it is made, while the processor's caches
/// hold it, this spares a look at all of them before they are sorted.
#[derive(Debug, Default)]
pub struct Heads {
    keys: Common,
    holders: Common,
}

impl Heads {
    pub fn add(&mut self, key: &[u8], holder: &[u8]) {
        self.keys.add(key);
        if !holder.is_empty() {
            self.holders.add(holder);
        }
    }
}

/// The order of two parts with these abstracts.
fn compare<'a>(a: u64, b: u64, parts: impl FnOnce() -> (&'a [u8], &'a [u8])) -> Ordering {
    a.cmp(&b).then_with(|| {
        // The eighth byte: both parts end within the abstract, so they are equal.
        if a & 0xff <= HEAD_BYTES as u64 {
            return Ordering::Equal;
        }
        let (left, right) = parts();
        left.cmp(right)
    })
}

/// Locks in every order that the registry keeps.
pub struct Sorted {
    /// Those without a holder, by key.
    pub unnamed: Vec<Lock>,
    /// The others, by key.
    pub by_key: Vec<Lock>,
    /// The same by holder, and by key among the locks of one.
    pub by_holder: Vec<Lock>,
}

/// Locks with the abstracts of what orders them.
#[derive(Default)]
struct Abstracted {
    unnamed: Vec<(u64, Lock)>,
    /// With a second share each, taken here since to count it looks at the lock.
    named: Vec<(u64, u64, Lock, Lock)>,
    /// Those that begin otherwise than all were said to.
    others: Vec<Lock>,
}

/// Pushes to a vector that will hold at most so many, and as a rule does: it takes its place at once, without growing.
fn push<T>(to: &mut Vec<T>, most: usize, entry: T) {
    if to.is_empty() {
        to.reserve_exact(most);
    }
    to.push(entry);
}

impl Abstracted {
    fn new(locks: impl Iterator<Item = Lock>, heads: &Heads) -> Self {
        let mut all = Self::default();
        let most = locks.size_hint().1.unwrap_or_default();
        for lock in locks {
            match (heads.keys.behind(lock.key()), lock.holder()) {
                (Some(key), []) => push(&mut all.unnamed, most, (key, lock)),
                (Some(key), holder) => match heads.holders.behind(holder) {
                    Some(holder) => push(&mut all.named, most, (key, holder, lock.clone(), lock)),
                    None => all.others.push(lock),
                },
                (None, _) => all.others.push(lock),
            }
        }
        all
    }

    /// All of the locks.
    fn into_locks(self) -> Vec<Lock> {
        let mut locks = self.others;
        locks.extend(self.unnamed.into_iter().map(|(_, lock)| lock));
        locks.extend(self.named.into_iter().map(|(_, _, lock, _)| lock));
        locks
    }
}

impl Sorted {
    /// Every lock is looked at in the order given, which after a load is that of the memory, and while sorting only where
    /// its abstract leaves a doubt. If `heads` were not noted of all locks, they are looked at once more.
    pub fn new(locks: impl Iterator<Item = Lock>, heads: &Heads) -> Self {
        let mut all = Abstracted::new(locks, heads);
        if !all.others.is_empty() {
            let locks = all.into_locks();
            let mut heads = Heads::default();
            locks.iter().for_each(|lock| heads.add(lock.key(), lock.holder()));
            all = Abstracted::new(locks.into_iter(), &heads);
        }
        let Abstracted { mut unnamed, mut named, .. } = all;
        unnamed.sort_unstable_by(|a, b| compare(a.0, b.0, || (a.1.key(), b.1.key())));
        named.sort_unstable_by(|a, b| compare(a.0, b.0, || (a.2.key(), b.2.key())));
        let (by_key, mut by_holder): (Vec<Lock>, Vec<(u64, Lock)>) =
            named.into_iter().map(|(_, holder, one, other)| (one, (holder, other))).unzip();
        // Locks of one holder stay in the order of their keys.
        by_holder.sort_by(|a, b| compare(a.0, b.0, || (a.1.holder(), b.1.holder())));
        Self {
            unnamed: unnamed.into_iter().map(|(_, lock)| lock).collect(),
            by_key,
            by_holder: by_holder.into_iter().map(|(_, lock)| lock).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::lock::Grant;
    use proptest::prelude::*;

    fn lock(key: &[u8], holder: &[u8], fence: u64) -> Lock {
        let grant =
            Grant { token: b"t", holder, fence, claimed_at_ms: 0, renewed_at_ms: 0, renewals: 0, linger_ms: None };
        Lock::new(key, &grant)
    }

    /// Few bytes, so that parts are equal, or begin alike, often.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn every_order_is_that_of_a_plain_sort(
            head in prop::collection::vec(any::<u8>(), 0..4),
            holder_head in prop::collection::vec(any::<u8>(), 0..4),
            parts in prop::collection::btree_map(part(), part(), 0..20).prop_map(|map| map.into_iter().collect::<Vec<_>>()),
            turn in 0usize..20,
            noted in 0usize..20,
        ) {
            let mut parts = parts;
            let turn = turn.min(parts.len());
            parts.rotate_left(turn);
            let locks: Vec<Lock> = parts
                .iter()
                .enumerate()
                .map(|(n, (key, holder))| lock(&[&head[..], key].concat(), &[&holder_head[..], holder].concat(), n as u64 + 1))
                .collect();
            // Not all need be noted.
            let mut heads = Heads::default();
            locks.iter().take(noted).for_each(|lock| heads.add(lock.key(), lock.holder()));
            let sorted = Sorted::new(locks.iter().cloned(), &heads);
            let same = |a: &[Lock], b: &[Lock]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b));
            let mut expected = locks;
            expected.sort_by(|a, b| a.key().cmp(b.key()));
            let (unnamed, mut named): (Vec<Lock>, Vec<Lock>) =
                expected.into_iter().partition(|lock| lock.holder().is_empty());
            prop_assert!(same(&sorted.unnamed, &unnamed));
            prop_assert!(same(&sorted.by_key, &named));
            named.sort_by(|a, b| a.holder().cmp(b.holder()));
            prop_assert!(same(&sorted.by_holder, &named));
        }
    }
}
