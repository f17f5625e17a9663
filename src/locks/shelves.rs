//! An ordered set of locks that hardly looks at them: what orders a lock lies beside its pointer.
//!
//! The locks lie in order on shelves, and a tree finds the shelf by a label: bytes above every rank on the shelves before
//! and not above any on this one. Four bytes of each rank stand beside the lock's pointer, taken behind those that all on
//! the shelf have in common. To find a lock's place among a hundred takes a few lines of memory, where a tree of pointers
//! would follow one to another lock, scattered over the memory, for every comparison.
//!
//! What belongs on a shelf begins with what its label and the next one have in common. What all that lie there have in
//! common beyond that is kept, and a rank is compared with it first: one that begins otherwise lies before or behind all
//! of them, and when such a lock comes, the four bytes of that one shelf are taken anew.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use super::Bytes;
use super::lock::Lock;

/// Locks on a shelf before it is divided.
const MOST: usize = 128;
/// Locks on a shelf that is filled at once.
const FILLED: usize = 112;
/// A shelf with fewer is joined with a neighbour where there is room.
const FEW: usize = 32;
/// Places that a shelf grows and shrinks by.
const STEP: usize = 16;

/// What a set is ordered by.
pub trait Order {
    /// The bytes that say where a lock belongs; put together in `room` where the lock doesn't hold them as they are.
    fn rank<'a>(lock: &'a Lock, room: &'a mut Bytes) -> &'a [u8];

    /// Compares the lock's rank with this one.
    fn compare(lock: &Lock, rank: &[u8]) -> Ordering {
        Self::rank(lock, &mut Bytes::new()).cmp(rank)
    }
}

/// By key.
#[derive(Debug)]
pub struct ByKey;

impl Order for ByKey {
    fn rank<'a>(lock: &'a Lock, _room: &'a mut Bytes) -> &'a [u8] {
        lock.key()
    }
}

/// By holder, and by key among the locks of one.
#[derive(Debug)]
pub struct ByHolder;

impl Order for ByHolder {
    fn rank<'a>(lock: &'a Lock, room: &'a mut Bytes) -> &'a [u8] {
        by_holder(lock.holder(), lock.key(), room);
        room
    }

    /// As a rule without putting the rank together.
    fn compare(lock: &Lock, rank: &[u8]) -> Ordering {
        if lock.holder().contains(&0) {
            return Self::rank(lock, &mut Bytes::new()).cmp(rank);
        }
        let mut rest = rank;
        for part in [lock.holder(), &[0, 0], lock.key()] {
            let Some((same_len, behind)) = rest.split_at_checked(part.len()) else { return part.cmp(rest) };
            match part.cmp(same_len) {
                Ordering::Equal => rest = behind,
                decided => return decided,
            }
        }
        if rest.is_empty() { Ordering::Equal } else { Ordering::Less }
    }
}

/// The rank of a lock of `holder` by holder: the holder, with its zero bytes told from its end, and the key.
pub fn by_holder(holder: &[u8], key: &[u8], rank: &mut Bytes) {
    rank.clear();
    let mut parts = holder.split(|byte| *byte == 0);
    rank.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        rank.extend_from_slice(&[0, u8::MAX]);
        rank.extend_from_slice(part);
    }
    rank.extend_from_slice(&[0, 0]);
    rank.extend_from_slice(key);
}

/// How many bytes both begin with.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Four bytes of a rank behind the first `skip`, zeros behind its end. Of two ranks that begin with the same `skip` bytes,
/// the lesser one has no greater head.
fn head_of(rank: &[u8], skip: usize) -> u32 {
    let rest = rank.get(skip..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return u32::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 4];
    bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    u32::from_be_bytes(bytes)
}

/// The shortest bytes above `below` and not above `rank`, which is greater than `below`.
fn label_between(below: &[u8], rank: &[u8]) -> Box<[u8]> {
    rank.get(..=common(below, rank)).unwrap_or(rank).into()
}

#[derive(Debug, Default)]
struct Shelf {
    /// Bytes that all ranks on this shelf have in common, or fewer.
    skip: usize,
    /// The last of these bytes: those that a rank which belongs here need not begin with, going by the labels.
    checked: Box<[u8]>,
    /// Of each lock, what follows on them. Empty where no lock has come or gone since the shelf was filled at once.
    heads: Vec<u32>,
    locks: Vec<Lock>,
}

impl Shelf {
    fn len(&self) -> usize {
        self.locks.len()
    }

    /// How many bytes all ranks here have in common; 0 for so few locks that the next one would change that.
    fn common<O: Order>(&self) -> usize {
        match &*self.locks {
            [first, .., last] if self.len() >= FEW / 2 => {
                let (mut left, mut right) = (Bytes::new(), Bytes::new());
                common(O::rank(first, &mut left), O::rank(last, &mut right))
            }
            _ => 0,
        }
    }

    /// Takes the heads anew. Every rank that belongs here begins with the same `sure` bytes.
    fn set_heads<O: Order>(&mut self, sure: usize) {
        let mut room = Bytes::new();
        self.skip = self.common::<O>().max(sure);
        self.checked = match self.locks.first() {
            Some(first) if self.skip > sure => {
                O::rank(first, &mut room).get(sure..self.skip).unwrap_or_default().into()
            }
            _ => Box::default(),
        };
        self.heads.clear();
        self.heads.reserve_exact(self.locks.capacity());
        self.heads.extend(self.locks.iter().map(|lock| head_of(O::rank(lock, &mut room), self.skip)));
    }

    /// Takes the heads anew where that is worth a look at all locks: once they begin with two bytes that are all the same.
    fn sharpen<O: Order>(&mut self, sure: usize) {
        if self.common::<O>().max(sure) > self.skip.saturating_add(1) {
            self.set_heads::<O>(sure);
        }
    }

    /// Sees to it that there are heads.
    fn with_heads<O: Order>(&mut self) -> &mut Self {
        if self.heads.len() != self.locks.len() {
            self.set_heads::<O>(self.sure());
        }
        self
    }

    /// Bytes that all ranks which belong here have in common.
    fn sure(&self) -> usize {
        self.skip.saturating_sub(self.checked.len())
    }

    /// Whether `rank`, which belongs here, lies before all that begin as those on this shelf do, or behind, or among them.
    fn side(&self, rank: &[u8]) -> Ordering {
        if self.checked.is_empty() {
            return Ordering::Equal;
        }
        let rest = rank.get(self.sure()..).unwrap_or_default();
        rest.get(..self.checked.len()).unwrap_or(rest).cmp(&self.checked)
    }

    /// Makes room for a rank that begins otherwise.
    fn widen<O: Order>(&mut self, rank: &[u8]) {
        let sure = self.sure();
        let same = common(rank.get(sure..).unwrap_or_default(), &self.checked);
        self.checked = self.checked.get(..same).unwrap_or_default().into();
        self.skip = sure.saturating_add(same);
        let mut room = Bytes::new();
        for (head, lock) in self.heads.iter_mut().zip(&self.locks) {
            *head = head_of(O::rank(lock, &mut room), self.skip);
        }
    }

    /// How many come before the first that compares otherwise than `is_before` says.
    fn place<O: Order>(&self, rank: &[u8], is_before: impl Fn(Ordering) -> bool) -> usize {
        match self.side(rank) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal => {}
        }
        let head = head_of(rank, self.skip);
        let (start, equal) = if self.heads.len() == self.locks.len() {
            let start = self.heads.partition_point(|other| *other < head);
            let rest = self.heads.get(start..).unwrap_or_default();
            (start, rest.partition_point(|other| *other == head))
        } else {
            (0, self.len())
        };
        let doubtful = self.locks.get(start..start.saturating_add(equal)).unwrap_or_default();
        start.saturating_add(doubtful.partition_point(|lock| is_before(O::compare(lock, rank))))
    }

    /// Where the first lock of this rank or a greater one is.
    fn at<O: Order>(&self, rank: &[u8]) -> usize {
        self.place::<O>(rank, Ordering::is_lt)
    }

    /// Where the first lock of a greater rank is.
    fn behind<O: Order>(&self, rank: &[u8]) -> usize {
        self.place::<O>(rank, Ordering::is_le)
    }

    fn put(&mut self, at: usize, head: u32, lock: Lock) {
        if self.locks.len() == self.locks.capacity() {
            self.locks.reserve_exact(STEP);
            self.heads.reserve_exact(STEP);
        }
        let at = at.min(self.len());
        self.heads.insert(at, head);
        self.locks.insert(at, lock);
    }

    /// Returns whether it was here.
    fn take(&mut self, head: u32, lock: &Lock) -> bool {
        let start = self.heads.partition_point(|other| *other < head);
        let rest = self.heads.iter().zip(&self.locks).skip(start);
        let found = rest.take_while(|(other, _)| **other == head).position(|(_, other)| other.is(lock));
        let Some(found) = found else { return false };
        let at = start.saturating_add(found);
        self.heads.remove(at);
        self.locks.remove(at);
        if self.locks.capacity().saturating_sub(self.len()) >= STEP * 2 {
            self.fit(STEP);
        }
        true
    }

    /// Gives back memory beyond `spare` places.
    fn fit(&mut self, spare: usize) {
        let places = self.len().saturating_add(spare);
        self.heads.shrink_to(places);
        self.locks.shrink_to(places);
    }

    /// Where to divide, and the label of the second part. In the middle half, it is where two neighbours differ soonest, so
    /// that the locks of one holder, say, get shelves of their own; else as near to the middle as two of different rank are.
    fn division<O: Order>(&self) -> Option<(usize, Box<[u8]>)> {
        let middle = self.len() / 2;
        let outwards = (0..=middle).flat_map(|way| [middle.saturating_sub(way), middle.saturating_add(way)]);
        let outwards = outwards.filter(|at| *at > 0);
        let same_bytes = |at: usize| {
            let (before, behind) = (self.heads.get(at.saturating_sub(1))?, self.heads.get(at)?);
            Some((before ^ behind).leading_zeros() / u8::BITS)
        };
        let soonest = outwards.clone().take(middle).min_by_key(|at| same_bytes(*at).unwrap_or(u32::MAX));
        soonest.into_iter().chain(outwards).find_map(|at| {
            let (before, behind) = (self.locks.get(at.saturating_sub(1))?, self.locks.get(at)?);
            let (mut left, mut right) = (Bytes::new(), Bytes::new());
            let (below, rank) = (O::rank(before, &mut left), O::rank(behind, &mut right));
            (below < rank).then(|| (at, label_between(below, rank)))
        })
    }
}

/// An ordered set of locks. Locks of equal rank lie in the order in which they came.
#[derive(Debug)]
pub struct Shelves<O> {
    /// By their labels. The first one's is empty, so that every rank belongs somewhere.
    shelves: BTreeMap<Box<[u8]>, Shelf>,
    order: PhantomData<O>,
}

impl<O> Default for Shelves<O> {
    fn default() -> Self {
        Self { shelves: BTreeMap::new(), order: PhantomData }
    }
}

/// The bounds of the labels of all shelves up to the one where `rank` belongs.
fn up_to(rank: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Unbounded, Included(rank))
}

impl<O: Order> Shelves<O> {
    /// The set of these, which are in order.
    pub fn filled(sorted: Vec<Lock>) -> Self {
        let mut starts: Vec<(usize, Box<[u8]>)> = vec![(0, Box::default())];
        let mut at = FILLED;
        while let (Some(before), Some(first)) = (sorted.get(at.saturating_sub(1)), sorted.get(at)) {
            let (mut left, mut right) = (Bytes::new(), Bytes::new());
            let (below, rank) = (O::rank(before, &mut left), O::rank(first, &mut right));
            if below < rank {
                starts.push((at, label_between(below, rank)));
                at = at.saturating_add(FILLED);
            } else {
                at = at.saturating_add(1);
            }
        }
        let ends: Vec<(usize, usize)> = starts
            .iter()
            .zip(starts.iter().skip(1))
            .map(|((_, label), (end, next))| (*end, common(label, next)))
            .chain([(sorted.len(), 0)])
            .collect();
        let mut sorted = sorted.into_iter();
        let shelves = starts.into_iter().zip(ends).map(|((start, label), (end, skip))| {
            let locks = sorted.by_ref().take(end.saturating_sub(start)).collect();
            (label, Shelf { skip, locks, ..Shelf::default() })
        });
        Self { shelves: shelves.collect(), order: PhantomData }
    }

    pub fn clear(&mut self) {
        // Mostly it is empty, each time that the last lock goes; to clear the map costs a look for its ends all the same.
        if !self.shelves.is_empty() {
            self.shelves.clear();
        }
    }

    pub fn insert(&mut self, lock: Lock) {
        if self.shelves.is_empty() {
            self.shelves.insert(Box::default(), Shelf::default());
        }
        let mut room = Bytes::new();
        let rank = O::rank(&lock, &mut room);
        let Some((label, shelf)) = self.shelves.range_mut::<[u8], _>(up_to(rank)).next_back() else { return };
        let shelf = shelf.with_heads::<O>();
        if shelf.side(rank).is_ne() {
            shelf.widen::<O>(rank);
        }
        let (at, head) = (shelf.behind::<O>(rank), head_of(rank, shelf.skip));
        shelf.put(at, head, lock);
        if shelf.len() == FEW {
            // It has grown: from nothing, the first shelf has.
            shelf.sharpen::<O>(shelf.sure());
        }
        if shelf.len() > MOST {
            let label = label.clone();
            self.divide(&label);
        }
    }

    pub fn remove(&mut self, lock: &Lock) {
        let mut room = Bytes::new();
        let rank = O::rank(lock, &mut room);
        let Some((label, shelf)) = self.shelves.range_mut::<[u8], _>(up_to(rank)).next_back() else { return };
        let shelf = shelf.with_heads::<O>();
        if shelf.take(head_of(rank, shelf.skip), lock) && shelf.len() < FEW && shelf.len() & 7 == 0 {
            let label = label.clone();
            let next = self.next(&label);
            self.join_with_previous(&label);
            if let Some(next) = next {
                self.join_with_previous(&next);
            }
        }
    }

    /// Everything of this order, ascending, from `rank` on or behind it.
    pub fn range(&self, rank: Bound<&[u8]>) -> impl Iterator<Item = &Lock> {
        let start = match rank {
            Included(rank) | Excluded(rank) => rank,
            Unbounded => &[],
        };
        let first = self.shelves.range::<[u8], _>(up_to(start)).next_back();
        let at = first.map_or(0, |(_, shelf)| match rank {
            Excluded(rank) => shelf.behind::<O>(rank),
            Included(rank) => shelf.at::<O>(rank),
            Unbounded => 0,
        });
        let label: &[u8] = first.map_or(&[], |(label, _)| label);
        let shelves = self.shelves.range::<[u8], _>((Included(label), Unbounded));
        shelves.flat_map(|(_, shelf)| &shelf.locks).skip(at)
    }

    pub fn into_locks(self) -> impl Iterator<Item = Lock> {
        self.shelves.into_values().flat_map(|shelf| shelf.locks)
    }

    fn next(&self, label: &[u8]) -> Option<Box<[u8]>> {
        self.shelves.range::<[u8], _>((Excluded(label), Unbounded)).next().map(|(label, _)| label.clone())
    }

    fn divide(&mut self, label: &[u8]) {
        let next = self.next(label);
        let Some(left) = self.shelves.get_mut(label) else { return };
        let Some((at, middle)) = left.division::<O>() else { return };
        let mut right = Shelf {
            skip: left.skip,
            checked: left.checked.clone(),
            heads: left.heads.split_off(at),
            locks: left.locks.split_off(at),
        };
        left.fit(STEP);
        let right_sure = next.map_or(0, |next| common(&middle, &next));
        for (shelf, sure) in [(left, common(label, &middle)), (&mut right, right_sure)] {
            shelf.sharpen::<O>(sure);
        }
        self.shelves.insert(middle, right);
    }

    /// Joins this shelf with the one before, if together they leave room.
    fn join_with_previous(&mut self, label: &[u8]) {
        let Some(len) = self.shelves.get(label).map(Shelf::len) else { return };
        let Some((before, previous)) = self.shelves.range::<[u8], _>((Unbounded, Excluded(label))).next_back() else {
            return;
        };
        if len > 0 && previous.len().saturating_add(len) > MOST - FEW {
            return;
        }
        let before = before.clone();
        let sure = self.next(label).map_or(0, |next| common(&before, &next));
        let Some(shelf) = self.shelves.remove(label) else { return };
        let Some(previous) = self.shelves.get_mut(&before) else { return };
        let is_same = sure >= previous.sure() && previous.skip == shelf.skip && previous.checked == shelf.checked;
        let (from, count) = (previous.len(), shelf.len());
        previous.locks.extend(shelf.locks);
        if is_same && previous.heads.len() == from && shelf.heads.len() == count {
            previous.heads.extend(shelf.heads);
        } else {
            previous.set_heads::<O>(sure);
        }
        previous.fit(STEP);
    }
}

#[cfg(test)]
mod tests;
