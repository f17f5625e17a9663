//! A server with a million locks, and one with as many plain strings. Several parts look at them; filling takes longer
//! than looking.

use crate::fill;
use crate::subject::Subject;

pub const MILLION: usize = 1_000_000;

pub struct Million {
    pub module: Crowd,
    pub bare: Crowd,
    /// Without the module too, with strings that are longer, so that as much memory is in use as with locks. Only for
    /// the part that starts servers anew.
    pub heavy: Option<Crowd>,
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
    pub fn fill() -> Self {
        eprintln!("        filling two servers with 1,000,000 locks each");
        let module = Crowd::of(Subject::with_module(), MILLION, fill::with_locks);
        let bare = Crowd::of(Subject::without_module(), MILLION, fill::with_strings);
        Self { module, bare, heavy: None }
    }

    /// Fills the third server, and writes snapshots to be loaded later.
    pub fn save(&mut self) {
        let extra = (self.module.taken() - self.bare.taken()).max(0.0) as usize;
        let heavy = Crowd::of(Subject::without_module(), MILLION, |subject, count| {
            fill::with_longer_strings(subject, count, extra);
        });
        for crowd in [&self.module, &self.bare, &heavy] {
            crowd.subject.ask(|conn| conn.ok(("SAVE",)));
        }
        self.heavy = Some(heavy);
    }
}

impl Crowd {
    pub fn of(subject: Subject, count: usize, fill: impl FnOnce(&Subject, usize)) -> Self {
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
