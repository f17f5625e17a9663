//! Names of which it must be told quickly that a word is none of them: every command of the server is asked for each of its
//! words while somebody waits (`changes/heed.rs`).

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// Bytes that count at either end of a name.
const END_BYTES: usize = 8;

/// A bag of names, of which it keeps a number each.
#[derive(Debug)]
pub struct Names {
    /// Odd, and unknown to clients, so that they can't choose names that lie together in the table.
    seed: u64,
    counts: HashMap<u64, usize, BuildHasherDefault<AsIs>>,
}

impl Default for Names {
    fn default() -> Self {
        Self { seed: RandomState::new().hash_one(()) | 1, counts: HashMap::default() }
    }
}

impl Names {
    /// A number for a name, from its length and ends: the same cost for any word.
    fn number(&self, name: &[u8]) -> u64 {
        let first = name.first_chunk::<END_BYTES>().map_or_else(|| short(name), |bytes| u64::from_ne_bytes(*bytes));
        let last = name.last_chunk::<END_BYTES>().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let mixed = (first ^ last.rotate_left(32) ^ name.len() as u64).wrapping_mul(self.seed);
        // The table takes its places from the low bits, which a product mixes least.
        mixed ^ (mixed >> 32)
    }

    /// Adds a name once more.
    pub fn add(&mut self, name: &[u8]) {
        let count = self.counts.entry(self.number(name)).or_default();
        *count = count.saturating_add(1);
    }

    /// Takes a name away that was added.
    pub fn remove(&mut self, name: &[u8]) {
        let number = self.number(name);
        if let Some(count) = self.counts.get_mut(&number) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&number);
            }
        }
    }

    /// Whether this may be one of the names. If it is, the answer is yes; a yes may be wrong.
    pub fn may_have(&self, name: &[u8]) -> bool {
        !self.counts.is_empty() && self.counts.contains_key(&self.number(name))
    }
}

/// The bytes of a name of less than eight.
fn short(name: &[u8]) -> u64 {
    name.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The number is mixed already.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests;
