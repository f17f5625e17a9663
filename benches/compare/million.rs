//! A server with a million locks, and one with as many plain strings. Several parts look at them; filling takes longer
//! than looking.

use crate::fill;
use crate::subject::Subject;

pub const MILLION: usize = 1_000_000;

pub struct Million {
    pub module: Crowd,
    pub bare: Crowd,
}

/// A full server.
pub struct Crowd {
    pub subject: Subject,
    /// How many locks it holds.
    pub count: usize,
    /// Its memory when it was empty, and when it was just filled, in bytes.
    pub empty: i64,
    pub full: i64,
}

impl Million {
    /// `save` writes a snapshot, to be loaded later.
    pub fn fill(save: bool) -> Self {
        eprintln!("        filling two servers with 1,000,000 locks each");
        let module = Crowd::of(Subject::with_module(), MILLION, fill::with_locks);
        let bare = Crowd::of(Subject::without_module(), MILLION, fill::with_strings);
        if save {
            for crowd in [&module, &bare] {
                crowd.subject.ask(|conn| conn.ok(("SAVE",)));
            }
        }
        Self { module, bare }
    }
}

impl Crowd {
    pub fn of(subject: Subject, count: usize, fill: fn(&Subject, usize)) -> Self {
        let empty = subject.settled_memory();
        fill(&subject, count);
        let full = subject.settled_memory();
        Self { subject, count, empty, full }
    }

    /// Bytes per lock, with all that belongs to it.
    pub fn taken(&self) -> f64 {
        (self.full - self.empty) as f64 / self.count as f64
    }
}
