//! One run of one part: its time, its seed, its progress.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::support::{ServerKind, server_kind};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);

pub struct Run {
    part: &'static str,
    start: Instant,
    time: Duration,
    seed: u64,
    told: Cell<Instant>,
}

impl Run {
    pub fn new(part: &'static str, time: Duration) -> Self {
        let seed = match std::env::var("PRLOCK_SEED") {
            Ok(text) => text.trim().parse().unwrap_or_else(|_| panic!("PRLOCK_SEED is no number: {text:?}")),
            Err(_) => rand::random(),
        };
        Self::seeded(part, time, seed)
    }

    /// With another's seed.
    pub fn seeded(part: &'static str, time: Duration, seed: u64) -> Self {
        let start = Instant::now();
        Self { part, start, time, seed, told: Cell::new(start) }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A generator for the choices of one round or client; the same for the same seed and `number`.
    pub fn rng(&self, number: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Which server it runs against, by its name.
    pub fn server(&self) -> &'static str {
        match server_kind() {
            ServerKind::Redis7 => "redis7",
            ServerKind::Redis8 => "redis8",
            ServerKind::Valkey8 => "valkey8",
            ServerKind::Valkey9 => "valkey9",
        }
    }

    /// Whether there is time for another round.
    pub fn goes_on(&self) -> bool {
        self.start.elapsed() < self.time
    }

    pub fn elapsed_s(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    /// Tells how far it is, every few seconds.
    pub fn progress(&self, what: impl FnOnce() -> String) {
        if self.told.get().elapsed() >= PROGRESS {
            self.told.set(Instant::now());
            println!("   {} {} s: {}", self.part, self.elapsed_s(), what());
        }
    }
}
