//! The locks that are known here: pieced together from pages, kept fresh where one looks, and put in the wanted order.

use std::time::{Duration, Instant};

use crate::client::Looked;
use crate::lock::Lock;

/// What the table is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Key,
    Holder,
    Fence,
    Age,
    Rest,
    Renewals,
    Waiters,
}

impl Column {
    pub const ALL: [Self; 7] =
        [Self::Key, Self::Holder, Self::Fence, Self::Age, Self::Rest, Self::Renewals, Self::Waiters];

    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Holder => "holder",
            Self::Fence => "fence",
            Self::Age => "age",
            Self::Rest => "rest",
            Self::Renewals => "renewals",
            Self::Waiters => "waiters",
        }
    }

    pub fn next(self) -> Self {
        let index = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Self::ALL[(index + 1) % Self::ALL.len()]
    }

    /// Whether the interesting end is the great one.
    pub fn starts_descending(self) -> bool {
        matches!(self, Self::Age | Self::Renewals | Self::Waiters)
    }
}

/// With more locks than these, the order is made anew only so often.
const MANY: usize = 2_000;
const ORDER_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Rows {
    /// By key.
    locks: Vec<Lock>,
    /// Indices into `locks`, in the wanted order; unused while that is by key, ascending.
    order: Vec<u32>,
    column: Column,
    descending: bool,
    stale: bool,
    ordered_at: Option<Instant>,
    /// Ages are compared as points in time since this one.
    origin: Instant,
}

impl Rows {
    pub fn new(now: Instant) -> Self {
        Self {
            locks: Vec::new(),
            order: Vec::new(),
            column: Column::Key,
            descending: false,
            stale: false,
            ordered_at: None,
            origin: now,
        }
    }

    pub fn len(&self) -> usize {
        self.locks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    pub fn clear(&mut self) {
        self.locks.clear();
        self.order.clear();
        self.changed();
    }

    /// Takes in a page: all locks behind the key `after`, up to the page's last, or to the end if it is the last page.
    pub fn merge(&mut self, after: Option<&[u8]>, page: Vec<Lock>, is_last: bool) {
        let start = after.map_or(0, |after| self.locks.partition_point(|lock| lock.key.as_slice() <= after));
        let end = match page.last() {
            Some(last) if !is_last => self.locks.partition_point(|lock| lock.key <= last.key),
            _ => self.locks.len(),
        };
        self.locks.splice(start..end.max(start), page);
        self.changed();
    }

    /// Takes in what single keys hold now; nothing if there is no lock any more.
    pub fn update(&mut self, looked: Looked) {
        let mut gone = false;
        for (key, found) in looked {
            let Ok(index) = self.locks.binary_search_by(|lock| lock.key.cmp(&key)) else { continue };
            match found {
                Some(lock) => self.locks[index] = lock,
                None => {
                    self.locks.remove(index);
                    gone = true;
                }
            }
        }
        if gone || self.column != Column::Key {
            self.changed();
        }
    }

    pub fn sort_by(&mut self, column: Column, descending: bool) {
        (self.column, self.descending) = (column, descending);
        self.stale = true;
        self.ordered_at = None;
    }

    /// Makes the order anew if it is due. Between two calls it stands still.
    pub fn arrange(&mut self, now: Instant) {
        let fits = self.order.len() == self.locks.len();
        let is_due = self.locks.len() < MANY || self.ordered_at.is_none_or(|at| now.duration_since(at) >= ORDER_EVERY);
        if self.is_natural() || (fits && (!self.stale || !is_due)) {
            return;
        }
        let Self { locks, column, origin, .. } = self;
        let mut order: Vec<u32> = (0..u32::try_from(locks.len()).unwrap_or(u32::MAX)).collect();
        let at = |index: &u32| &locks[*index as usize];
        match column {
            Column::Key => {}
            // Stable sorts: equal ones stay in the order of their keys.
            Column::Holder => order.sort_by(|a, b| at(a).holder.cmp(&at(b).holder)),
            Column::Fence => order.sort_by_key(|index| at(index).fence),
            Column::Age => order
                .sort_by_key(|index| std::cmp::Reverse(point_ms(*origin, at(index), -i128::from(at(index).held_ms)))),
            Column::Rest => order.sort_by_key(|index| {
                at(index).ttl_ms.map_or(i128::MAX, |ttl_ms| point_ms(*origin, at(index), i128::from(ttl_ms)))
            }),
            Column::Renewals => order.sort_by_key(|index| at(index).renewals),
            Column::Waiters => order.sort_by_key(|index| at(index).waiters),
        }
        if self.descending {
            order.reverse();
        }
        self.order = order;
        self.stale = false;
        self.ordered_at = Some(now);
    }

    /// The lock in a row.
    pub fn get(&self, row: usize) -> Option<&Lock> {
        if self.is_natural() {
            return self.locks.get(row);
        }
        self.order.get(row).and_then(|index| self.locks.get(*index as usize))
    }

    /// The row of a key.
    pub fn row_of(&self, key: &[u8]) -> Option<usize> {
        let index = self.locks.binary_search_by(|lock| lock.key.as_slice().cmp(key)).ok()?;
        if self.is_natural() {
            return Some(index);
        }
        self.order.iter().position(|ordered| *ordered as usize == index)
    }

    fn is_natural(&self) -> bool {
        self.column == Column::Key && !self.descending
    }

    fn changed(&mut self) {
        self.stale = true;
        // Indices into what was there before point elsewhere now.
        if self.order.len() != self.locks.len() {
            self.order.clear();
        }
    }
}

/// A point in time `ms` away from when the lock was seen, in ms since `origin`.
fn point_ms(origin: Instant, lock: &Lock, ms: i128) -> i128 {
    let seen_ms = lock.seen.saturating_duration_since(origin).as_millis() as i128;
    seen_ms.saturating_add(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(key: &str, held_ms: u64, now: Instant) -> Lock {
        Lock {
            key: key.into(),
            holder: b"worker".to_vec(),
            fence: held_ms,
            ttl_ms: Some(1_000),
            held_ms,
            idle_ms: 0,
            renewals: 0,
            linger_ms: None,
            waiters: 0,
            seen: now,
        }
    }

    fn keys(rows: &Rows) -> String {
        let keys: Vec<_> = (0..rows.len()).filter_map(|row| rows.get(row)).map(|lock| lock.key.clone()).collect();
        String::from_utf8(keys.join(&b' ')).expect("keys in ASCII")
    }

    fn page(keys: &str, now: Instant) -> Vec<Lock> {
        keys.split_whitespace().map(|key| lock(key, 0, now)).collect()
    }

    #[test]
    fn a_page_replaces_just_what_it_covers() {
        let now = Instant::now();
        let mut rows = Rows::new(now);
        rows.merge(None, page("b d f", now), true);
        rows.merge(None, page("a b", now), false);
        assert_eq!(keys(&rows), "a b d f");
        rows.merge(Some(b"b"), page("c e", now), false);
        assert_eq!(keys(&rows), "a b c e f");
        rows.merge(Some(b"e"), page("", now), true);
        assert_eq!(keys(&rows), "a b c e");
        rows.merge(None, page("", now), true);
        assert_eq!(keys(&rows), "");
    }

    #[test]
    fn a_look_at_single_keys_drops_what_is_gone() {
        let now = Instant::now();
        let mut rows = Rows::new(now);
        rows.merge(None, page("a b c", now), true);
        let newer = lock("c", 77, now);
        rows.update(vec![(b"b".to_vec(), None), (b"c".to_vec(), Some(newer)), (b"x".to_vec(), None)]);
        assert_eq!(keys(&rows), "a c");
        assert_eq!(rows.get(1).map(|lock| lock.held_ms), Some(77));
    }

    #[test]
    fn every_column_sorts_both_ways() {
        let now = Instant::now();
        let mut rows = Rows::new(now);
        rows.merge(None, vec![lock("a", 20, now), lock("b", 30, now), lock("c", 10, now)], true);
        rows.sort_by(Column::Age, true);
        rows.arrange(now);
        assert_eq!(keys(&rows), "b a c");
        assert_eq!(rows.row_of(b"c"), Some(2));
        rows.sort_by(Column::Fence, false);
        rows.arrange(now);
        assert_eq!(keys(&rows), "c a b");
        rows.sort_by(Column::Key, true);
        rows.arrange(now);
        assert_eq!(keys(&rows), "c b a");
    }

    #[test]
    fn an_age_that_was_seen_earlier_counts_on() {
        let now = Instant::now();
        let later = now + Duration::from_secs(10);
        let mut rows = Rows::new(now);
        rows.merge(None, vec![lock("early", 5_000, now), lock("late", 6_000, later)], true);
        rows.sort_by(Column::Age, true);
        rows.arrange(later);
        assert_eq!(keys(&rows), "early late");
    }
}
