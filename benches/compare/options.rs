//! What is asked of this run, by environment variables, as `make` sets them.

use crate::parts;

/// Fewer rounds would make a median of chance.
const LEAST_ROUNDS: usize = 7;

pub struct Options {
    /// Rounds that count; one more before them warms the servers up.
    pub rounds: usize,
    /// The parts to run; empty for all.
    only: Vec<String>,
}

impl Options {
    /// `ROUNDS` and `ONLY` (names of parts, with commas between them).
    pub fn from_environment() -> Result<Self, String> {
        let rounds = match variable("ROUNDS") {
            None => LEAST_ROUNDS,
            Some(text) => text.parse().map_err(|_| format!("ROUNDS is {text:?}; it must be a number"))?,
        };
        if rounds < LEAST_ROUNDS {
            return Err(format!("ROUNDS is {rounds}; it must be at least {LEAST_ROUNDS}"));
        }
        let only: Vec<String> = variable("ONLY").unwrap_or_default().split(',').map(str::to_owned).collect();
        let only: Vec<String> = only.into_iter().filter(|name| !name.is_empty()).collect();
        let known: Vec<&str> = parts::ALL.iter().map(|part| part.name).collect();
        for name in &only {
            if !known.contains(&name.as_str()) {
                return Err(format!("ONLY names {name:?}; the parts are {}", known.join(", ")));
            }
        }
        Ok(Self { rounds, only })
    }

    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }
}

/// An environment variable that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}
