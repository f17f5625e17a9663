//! Contenders that take turns, so that what disturbs the machine disturbs them all alike.

use crate::stats::median;

/// Something to measure once a round.
pub struct Contender<'a> {
    pub name: &'static str,
    measure: Box<dyn FnMut() -> f64 + 'a>,
}

/// What a contender's rounds gave.
#[derive(Clone)]
pub struct Series {
    pub name: &'static str,
    pub samples: Vec<f64>,
}

pub fn contender<'a>(name: &'static str, measure: impl FnMut() -> f64 + 'a) -> Contender<'a> {
    Contender { name, measure: Box::new(measure) }
}

/// One round that does not count, then `rounds` that do. Dots on stderr show that it goes on.
pub fn interleave(rounds: usize, mut contenders: Vec<Contender<'_>>) -> Vec<Series> {
    let mut all: Vec<Series> = contenders.iter().map(|c| Series { name: c.name, samples: Vec::new() }).collect();
    eprint!("        ");
    for round in 0..=rounds {
        for (contender, series) in contenders.iter_mut().zip(&mut all) {
            let sample = (contender.measure)();
            if round > 0 {
                series.samples.push(sample);
            }
        }
        eprint!(".");
    }
    eprintln!();
    all
}

impl Series {
    pub fn median(&self) -> f64 {
        median(&self.samples)
    }

    /// Round by round, what the parts gave together.
    pub fn sum(parts: &[Self]) -> Self {
        let rounds = 0..parts[0].samples.len();
        let samples = rounds.map(|round| parts.iter().map(|part| part.samples[round]).sum()).collect();
        Self { name: parts[0].name, samples }
    }

    /// How many times the other's: the median over the rounds of the ratio within a round.
    pub fn ratio_to(&self, other: &Series) -> f64 {
        let ratios: Vec<f64> = self.samples.iter().zip(&other.samples).map(|(ours, theirs)| ours / theirs).collect();
        median(&ratios)
    }

    /// How much more than the other, in the same way.
    pub fn more_than(&self, other: &Series) -> f64 {
        let differences: Vec<f64> = self.samples.iter().zip(&other.samples).map(|(a, b)| a - b).collect();
        median(&differences)
    }
}

/// Puts together what has the same name.
pub fn joined(all: Vec<Series>) -> Vec<Series> {
    let mut joined: Vec<Series> = Vec::new();
    for series in all {
        match joined.iter_mut().find(|other| other.name == series.name) {
            Some(other) => other.samples.extend(series.samples),
            None => joined.push(series),
        }
    }
    joined
}

/// The series of that name.
pub fn named<'s>(all: &'s [Series], name: &str) -> &'s Series {
    all.iter().find(|series| series.name == name).unwrap_or_else(|| panic!("no series {name}"))
}
