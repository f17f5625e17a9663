//! Holders that many locks have in common: their locks point at one label instead of holding its bytes each.
//!
//! A label is shared from its second lock on, so that locks which have a holder of their own cost nothing more. To find
//! it takes a bounded time, whatever labels clients think of: shared ones lie in rows of a few, and one that finds no room
//! there is not shared. A share lives as long as its locks, and the table lets go of it at a later sweep.

use std::fmt;

use triomphe::ThinArc;

/// Labels up to this length are no longer than what would point at them.
const SHORT_BYTES: usize = size_of::<usize>();
/// Labels in a row.
const WAYS: usize = 4;
/// Rows of the smallest table and of the largest.
const ROWS_MIN: usize = 16;
const ROWS_MAX: usize = 4_096;
/// Rows that a sweep looks at.
const SWEPT: usize = 64;
/// Labels of which is known that they were seen once, at most.
const SEEN: usize = 4_096;

/// A label that several locks share.
#[derive(Clone)]
pub struct Holder(ThinArc<(), u8>);

impl Holder {
    pub(super) fn new(label: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice((), label))
    }

    pub fn label(&self) -> &[u8] {
        &self.0.slice
    }

    /// Whether the table alone has it.
    fn is_unused(&self) -> bool {
        ThinArc::strong_count(&self.0) == 1
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.label().fmt(f)
    }
}

/// Shared labels with their hashes.
type Row = [Option<(u32, Holder)>; WAYS];

/// The labels that are shared.
#[derive(Debug, Default)]
pub struct Holders {
    /// As many as a power of two, or none.
    rows: Vec<Row>,
    /// The hash of a label that was seen, at the place that the hash says.
    seen: Vec<u32>,
    /// Where the next sweep begins.
    next: usize,
}

/// Spreads labels over the rows. Nothing depends on it but how many are shared.
fn hash(label: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = label.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let mixed = words.iter().chain([&last]).fold(label.len() as u64, |hash, word| {
        let mixed = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(ODD);
        mixed ^ (mixed >> 32)
    });
    mixed as u32
}

impl Holders {
    /// The share of this label for a new lock; `None` if the lock is to hold the label itself.
    pub fn share(&mut self, label: &[u8]) -> Option<Holder> {
        if label.len() <= SHORT_BYTES {
            return None;
        }
        let hash = hash(label);
        if let Some(row) = row_of(&mut self.rows, hash)
            && let Some((_, holder)) =
                row.iter().flatten().find(|(other, holder)| *other == hash && holder.label() == label)
        {
            return Some(holder.clone());
        }
        if self.seen.is_empty() {
            self.seen.resize(SEEN, 0);
        }
        let seen = self.seen.get_mut(hash as usize % SEEN)?;
        if *seen != hash {
            *seen = hash;
            return None;
        }
        let holder = Holder::new(label);
        while !self.put(hash, &holder) {
            if !self.grow() {
                return None;
            }
        }
        Some(holder)
    }

    /// False if there is no room in its row.
    fn put(&mut self, hash: u32, holder: &Holder) -> bool {
        let room = row_of(&mut self.rows, hash)
            .and_then(|row| row.iter_mut().find(|place| place.as_ref().is_none_or(|(_, holder)| holder.is_unused())));
        match room {
            Some(place) => *place = Some((hash, holder.clone())),
            None => return false,
        }
        true
    }

    /// Twice as many rows. False if there are enough.
    fn grow(&mut self) -> bool {
        let count = self.rows.len().saturating_mul(2).max(ROWS_MIN);
        if count > ROWS_MAX {
            return false;
        }
        let mut rows = Vec::with_capacity(count);
        rows.resize_with(count, Row::default);
        for (hash, holder) in std::mem::replace(&mut self.rows, rows).into_iter().flatten().flatten() {
            // What was in one row has room in two.
            self.put(hash, &holder);
        }
        true
    }

    /// Whether there is nothing to sweep.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Lets go of labels that no lock has any more, each time in another part of the table; of everything, where there is
    /// no lock (`is_idle`).
    pub fn sweep(&mut self, is_idle: bool) {
        if is_idle {
            *self = Self::default();
        }
        if self.next >= self.rows.len() {
            self.next = 0;
        }
        for place in self.rows.iter_mut().skip(self.next).take(SWEPT).flatten() {
            if place.as_ref().is_some_and(|(_, holder)| holder.is_unused()) {
                *place = None;
            }
        }
        self.next = self.next.saturating_add(SWEPT);
    }

    /// How many labels are shared.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.rows.iter().flatten().flatten().count()
    }
}

fn row_of(rows: &mut [Row], hash: u32) -> Option<&mut Row> {
    let mask = rows.len().wrapping_sub(1);
    rows.get_mut(hash as usize & mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(number: usize) -> Vec<u8> {
        format!("worker-{number:05}").into_bytes()
    }

    #[test]
    fn a_label_is_shared_from_its_second_lock_on() {
        let mut holders = Holders::default();
        assert!(holders.share(b"worker-17").is_none());
        let second = holders.share(b"worker-17").expect("seen before");
        let third = holders.share(b"worker-17").expect("shared");
        assert_eq!(second.label(), b"worker-17");
        assert!(std::ptr::eq(second.label(), third.label()));
        assert!(holders.share(b"worker-18").is_none());
    }

    #[test]
    fn short_labels_are_not_shared() {
        let mut holders = Holders::default();
        for _ in 0..3 {
            assert!(holders.share(b"12345678").is_none());
            assert!(holders.share(b"").is_none());
        }
        assert!(holders.is_empty());
    }

    #[test]
    fn thousands_of_holders_are_shared_and_more_than_there_is_room_for_are_not() {
        let mut holders = Holders::default();
        let mut shares = Vec::new();
        for _ in 0..3 {
            shares.extend((0..2_000).filter_map(|number| holders.share(&label(number))));
        }
        assert!(shares.len() > 2_000, "{}", shares.len());
        let twice = (2_000..30_000).flat_map(|number| [number, number]);
        shares.extend(twice.filter_map(|number| holders.share(&label(number))));
        assert_eq!(holders.rows.len(), ROWS_MAX);
        assert!(holders.len() > ROWS_MAX * WAYS * 3 / 4, "{}", holders.len());
    }

    #[test]
    fn nothing_is_left_when_the_locks_are_gone() {
        let mut holders = Holders::default();
        let shares: Vec<Holder> = (0..600).chain(0..600).filter_map(|number| holders.share(&label(number))).collect();
        let kept = shares.first().cloned().expect("shared");
        assert_eq!(holders.len(), shares.len());
        drop(shares);
        (0..ROWS_MAX / SWEPT).for_each(|_| holders.sweep(false));
        assert_eq!(holders.len(), 1);
        assert!(holders.share(kept.label()).is_some());
        drop(kept);
        holders.sweep(true);
        assert!(holders.is_empty() && holders.rows.capacity() == 0);
    }

    proptest! {
        #[test]
        fn a_share_is_the_label_that_was_asked_for(
            labels in prop::collection::vec(prop::collection::vec(0u8..3, 7..20), 0..300),
            sweeps in prop::collection::vec(any::<bool>(), 300),
        ) {
            let mut holders = Holders::default();
            let mut shares = Vec::new();
            for (label, sweeps) in labels.iter().zip(sweeps) {
                if let Some(share) = holders.share(label) {
                    prop_assert_eq!(share.label(), &label[..]);
                    shares.push(share);
                }
                if sweeps {
                    shares.truncate(shares.len() / 2);
                    holders.sweep(false);
                }
            }
        }
    }
}
