//! Claim, renew, release: the life of a lock, beside the commands and scripts that make locks today.

use crate::bench::Bench;
use crate::recipes::{self, Recipe};
use crate::report::{Report, Target};
use crate::rounds::{Series, contender, interleave, named};
use crate::subject::Subject;
use crate::support::Server;
use crate::value::Value;
use crate::words::scattered_keys;

const PART: &str = "cycle";

const KEYS: usize = 100_000;
/// With an append-only file every round writes all its changes to the disk.
const KEYS_WITH_AOF: usize = 30_000;
const AOF: &[(&str, &str)] =
    &[("appendonly", "yes"), ("appendfsync", "everysec"), ("auto-aof-rewrite-percentage", "0")];

pub fn run(bench: &mut Bench) {
    let rounds = bench.options.rounds;
    let arena = Arena::new(&[]);
    let all = arena.key_by_key(rounds, KEYS);
    tell(&mut bench.report, "claim, renew, release, one key after another", &all, target);
    for series in &all {
        bench.report.keep(format!("cycle, {}", series.name), series.median());
    }

    let held = arena.all_at_once(rounds, KEYS);
    tell(&mut bench.report, "claim, renew, release, 100,000 held at once", &held.whole, target);
    for (what, phase) in ["claim", "renew", "release"].into_iter().zip(&held.phases) {
        tell(&mut bench.report, &format!("of that the {what}"), &phase[..2], |_| Target::None);
    }

    let all = Arena::new(AOF).key_by_key(rounds, KEYS_WITH_AOF);
    tell(&mut bench.report, "claim, renew, release, with an append-only file", &all, |_| Target::None);
}

/// This module's server, and the one of all that it is compared with.
struct Arena {
    module: Subject,
    bare: Subject,
    /// This module's own first, and then the plain one.
    recipes: Vec<Recipe>,
}

/// What came of holding all keys at once.
struct Held {
    whole: Vec<Series>,
    /// The claims, the renewals, the releases.
    phases: [Vec<Series>; 3],
}

impl Arena {
    fn new(settings: &[(&str, &str)]) -> Self {
        let configured =
            || settings.iter().fold(Server::builder(), |builder, (name, value)| builder.config(name, value));
        let module = Subject::of(configured());
        let bare = Subject::of(configured().without_module());
        let mut recipes =
            vec![recipes::prlock(), recipes::plain(), bare.ask(recipes::evalsha), bare.ask(recipes::fcall)];
        recipes.extend(recipes::ifeq());
        Self { module, bare, recipes }
    }

    fn subject_for(&self, recipe: &Recipe) -> &Subject {
        if recipe.name == recipes::PRLOCK { &self.module } else { &self.bare }
    }

    /// The server's time for a cycle, in µs.
    fn key_by_key(&self, rounds: usize, keys: usize) -> Vec<Series> {
        let contenders = self.recipes.iter().map(|recipe| {
            let subject = self.subject_for(recipe);
            let script = recipe.key_by_key(scattered_keys(keys));
            contender(recipe.name, move || subject.us_per_command(&script) * 3.0)
        });
        interleave(rounds, contenders.collect())
    }

    fn all_at_once(&self, rounds: usize, keys: usize) -> Held {
        let keys: Vec<String> = scattered_keys(keys).collect();
        let mut contenders = Vec::new();
        for recipe in &self.recipes {
            let subject = self.subject_for(recipe);
            for script in recipe.phases(&keys) {
                contenders.push(contender(recipe.name, move || subject.us_per_command(&script)));
            }
        }
        let all = interleave(rounds, contenders);
        let phases = [0, 1, 2].map(|at| all.iter().skip(at).step_by(3).cloned().collect());
        let whole = all.chunks(3).map(Series::sum).collect();
        Held { whole, phases }
    }
}

/// Sets the first of the series beside each of the others.
fn tell(report: &mut Report, what: &str, all: &[Series], target: fn(&str) -> Target) {
    let ours = named(all, recipes::PRLOCK);
    for other in &all[1..] {
        report.beside(
            PART,
            what,
            Value(ours.median(), "µs"),
            (other.name, Value(other.median(), "µs")),
            (Value(ours.ratio_to(other), "x"), target(other.name)),
        );
    }
}

fn target(other: &str) -> Target {
    Target::AtMost(match other {
        recipes::PLAIN => 1.15,
        recipes::IFEQ => 1.0,
        _ => 0.40,
    })
}
