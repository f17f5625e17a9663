//! What is asked of this run, by environment variables, as `make` sets them.

use crate::parts;

/// Fewer rounds would make a median of chance.
const LEAST_ROUNDS: usize = 7;

pub struct Options {
    /// Rounds that count; one more before them warms the servers up.
    pub rounds: usize,
    /// Whether to renew the tables and the picture in docs.
    pub write: bool,
    /// Whether to count instructions, which takes valgrind and some minutes.
    pub callgrind: bool,
    /// The parts to run; empty for all.
    only: Vec<String>,
}

impl Options {
    /// `ROUNDS`, `WRITE=1`, `CALLGRIND=1` and `ONLY` (names of parts, with commas between them).
    pub fn from_environment() -> Result<Self, String> {
        let rounds = match variable("ROUNDS") {
            None => LEAST_ROUNDS,
            Some(text) => text.parse().map_err(|_| format!("ROUNDS is {text:?}; it must be a number"))?,
        };
        if rounds < LEAST_ROUNDS {
            return Err(format!("ROUNDS is {rounds}; it must be at least {LEAST_ROUNDS}"));
        }
        let only = variable("ONLY").unwrap_or_default();
        let only: Vec<String> = only.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let known: Vec<&str> = parts::ALL.iter().map(|part| part.name).collect();
        if let Some(name) = only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("ONLY names {name:?}; the parts are {}", known.join(", ")));
        }
        let options = Self { rounds, only, write: is_set("WRITE")?, callgrind: is_set("CALLGRIND")? };
        if options.write && !options.only.is_empty() {
            return Err("WRITE needs the numbers of all parts: leave ONLY away".to_owned());
        }
        Ok(options)
    }

    pub fn wants(&self, part: &str) -> bool {
        if part == parts::INSTRUCTIONS && !self.callgrind {
            return false;
        }
        self.only.is_empty() || self.only.iter().any(|name| name == part)
    }
}

/// An environment variable that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}

fn is_set(name: &str) -> Result<bool, String> {
    match variable(name).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("{name} is {other:?}; it can be 1 or 0")),
    }
}
