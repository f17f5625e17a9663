//! Random choices that can be made again.

use std::ops::{Deref, DerefMut};

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A generator that tells its seed when the test fails. `PRLOCK_SEED` sets the seed.
pub struct SeededRng {
    seed: u64,
    rng: StdRng,
}

/// A generator with the seed `PRLOCK_SEED`, or a new one.
pub fn seeded_rng() -> SeededRng {
    let seed = match std::env::var("PRLOCK_SEED") {
        Ok(text) => text.trim().parse().unwrap_or_else(|_| panic!("PRLOCK_SEED is no number: {text:?}")),
        Err(_) => rand::random(),
    };
    SeededRng { seed, rng: StdRng::seed_from_u64(seed) }
}

impl Deref for SeededRng {
    type Target = StdRng;

    fn deref(&self) -> &StdRng {
        &self.rng
    }
}

impl DerefMut for SeededRng {
    fn deref_mut(&mut self) -> &mut StdRng {
        &mut self.rng
    }
}

impl Drop for SeededRng {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat this run: PRLOCK_SEED={}", self.seed);
        }
    }
}
