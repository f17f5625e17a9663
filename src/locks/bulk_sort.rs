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
struct Common(usize);

impl Common {
    fn of(locks: &[Lock], part: impl Fn(&Lock) -> &[u8]) -> Self {
        let Some(first) = locks.first() else { return Self(0) };
        let first = part(first);
        Self(locks.iter().fold(first.len(), |common, lock| {
            first.iter().zip(part(lock)).take(common).take_while(|(a, b)| a == b).count()
        }))
    }

    fn abstract_of(&self, part: &[u8]) -> u64 {
        abstract_of(part.get(self.0..).unwrap_or_default())
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

/// The locks in the order of their keys, and in that of holders and, within one, of keys. Every lock is looked at in the
/// order given, which after a load is that of the memory, and while sorting only where its abstract leaves a doubt.
pub fn by_key_and_by_holder(locks: Vec<Lock>) -> (Vec<Lock>, Vec<Lock>) {
    let (keys, holders) = (Common::of(&locks, Lock::key), Common::of(&locks, Lock::holder));
    let mut by_holder: Vec<(u64, u64, Lock)> = Vec::with_capacity(locks.len());
    by_holder.extend(
        locks.iter().map(|lock| (holders.abstract_of(lock.holder()), keys.abstract_of(lock.key()), lock.clone())),
    );
    let mut by_key: Vec<(u64, Lock)> = Vec::with_capacity(locks.len());
    by_key.extend(by_holder.iter().zip(locks).map(|((_, key, _), lock)| (*key, lock)));
    by_key.sort_unstable_by(|a, b| compare(a.0, b.0, || (a.1.key(), b.1.key())));
    by_holder.sort_unstable_by(|a, b| {
        compare(a.0, b.0, || (a.2.holder(), b.2.holder())).then_with(|| compare(a.1, b.1, || (a.2.key(), b.2.key())))
    });
    (by_key.into_iter().map(|(_, lock)| lock).collect(), by_holder.into_iter().map(|(_, _, lock)| lock).collect())
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
        fn both_orders_are_those_of_a_plain_sort(
            head in prop::collection::vec(any::<u8>(), 0..4),
            parts in prop::collection::btree_map(part(), part(), 0..20).prop_map(|map| map.into_iter().collect::<Vec<_>>()),
            turn in 0usize..20,
        ) {
            let mut parts = parts;
            let turn = turn.min(parts.len());
            parts.rotate_left(turn);
            let locks: Vec<Lock> = parts
                .iter()
                .enumerate()
                .map(|(n, (key, holder))| lock(&[&head[..], key].concat(), &[&head[..], holder].concat(), n as u64 + 1))
                .collect();
            let (by_key, by_holder) = by_key_and_by_holder(locks.clone());
            let mut expected = locks.clone();
            expected.sort_by(|a, b| a.key().cmp(b.key()));
            prop_assert!(by_key.iter().zip(&expected).all(|(a, b)| a.is(b)) && by_key.len() == locks.len());
            expected.sort_by(|a, b| (a.holder(), a.key()).cmp(&(b.holder(), b.key())));
            prop_assert!(by_holder.iter().zip(&expected).all(|(a, b)| a.is(b)) && by_holder.len() == locks.len());
        }
    }
}
