//! Calls of PRLOCK.LIST on a full server, each for another part of the locks: asked for the same again and again, the
//! processor's caches would make it cheaper than it is.

use std::cell::Cell;

use crate::fill::LOCKS_PER_HOLDER;
use crate::million::Crowd;
use crate::support::items;
use crate::words::{holder, key};

pub const PAGE: usize = 100;

/// Keys that share all but the last two digits.
pub const PREFIX: usize = 100;

/// A prime, larger than the number of the holders and of the prefixes.
const STRIDE: usize = 17_389;

pub struct Listing<'c> {
    crowd: &'c Crowd,
    turn: Cell<usize>,
}

impl<'c> Listing<'c> {
    pub fn new(crowd: &'c Crowd) -> Self {
        Self { crowd, turn: Cell::new(0) }
    }

    pub fn page(&self) {
        let after = key(self.next(self.crowd.count - PAGE));
        self.list(PAGE, [("AFTER", after), ("COUNT", PAGE.to_string())].as_slice());
    }

    pub fn holder(&self) {
        let holder = holder(self.next_holder());
        self.list(LOCKS_PER_HOLDER, [("HOLDER", holder)].as_slice());
    }

    pub fn prefix(&self) {
        let pattern = self.next_prefix();
        self.list(PREFIX, [("MATCH", pattern)].as_slice());
    }

    pub fn next_holder(&self) -> usize {
        self.next(self.crowd.count / LOCKS_PER_HOLDER)
    }

    pub fn next_prefix(&self) -> String {
        let mut pattern = key(self.next(self.crowd.count));
        pattern.truncate(pattern.len() - 2);
        pattern + "*"
    }

    /// Another number below `limit` each time.
    fn next(&self, limit: usize) -> usize {
        self.turn.set(self.turn.get() + STRIDE);
        self.turn.get() % limit
    }

    /// Runs PRLOCK.LIST, which must find `due` locks.
    fn list(&self, due: usize, options: &[(&str, String)]) {
        let found = self.crowd.subject.ask(|conn| items(&conn.ok(("PRLOCK.LIST", options))).len());
        assert!(found == due, "{found} locks instead of {due}");
    }
}
