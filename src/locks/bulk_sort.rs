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

/// Parts of locks, abstracted: how many bytes all of them have in common.
struct Common<'a> {
    first: Option<&'a [u8]>,
    len: usize,
}

impl<'a> Common<'a> {
    fn new() -> Self {
        Self { first: None, len: 0 }
    }

    fn add(&mut self, part: &'a [u8]) {
        match self.first {
            None => (self.first, self.len) = (Some(part), part.len()),
            // Nearly always the same as of the parts before, and then compared in one go.
            Some(first) if first.get(..self.len) == part.get(..self.len) => {}
            Some(first) => self.len = first.iter().zip(part).take(self.len).take_while(|(a, b)| a == b).count(),
        }
    }
}

fn behind(common: usize, part: &[u8]) -> u64 {
    abstract_of(part.get(common..).unwrap_or_default())
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

impl Sorted {
    /// Every lock is looked at in the order given, which after a load is that of the memory, and while sorting only where
    /// its abstract leaves a doubt.
    pub fn new(locks: Vec<Lock>) -> Self {
        let (mut keys, mut holders) = (Common::new(), Common::new());
        for lock in &locks {
            keys.add(lock.key());
            if !lock.holder().is_empty() {
                holders.add(lock.holder());
            }
        }
        let (keys, holders) = (keys.len, holders.len);
        let mut unnamed: Vec<(u64, Lock)> = Vec::new();
        let mut named: Vec<(u64, u64, Lock, Lock)> = Vec::new();
        for lock in locks {
            let key = behind(keys, lock.key());
            match lock.holder() {
                [] => unnamed.push((key, lock)),
                // The second share is taken now: to count it looks at the lock.
                holder => named.push((key, behind(holders, holder), lock.clone(), lock)),
            }
        }
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
        ) {
            let mut parts = parts;
            let turn = turn.min(parts.len());
            parts.rotate_left(turn);
            let locks: Vec<Lock> = parts
                .iter()
                .enumerate()
                .map(|(n, (key, holder))| lock(&[&head[..], key].concat(), &[&holder_head[..], holder].concat(), n as u64 + 1))
                .collect();
            let sorted = Sorted::new(locks.clone());
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
