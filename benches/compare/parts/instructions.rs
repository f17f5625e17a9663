//! How many instructions a cycle takes: a number that no mood of the machine changes. Only with CALLGRIND=1.

use crate::bench::Bench;
use crate::recipes::{self, Recipe};
use crate::report::Target;
use crate::script::Player;
use crate::support::Conn;
use crate::valgrind::Valgrind;
use crate::value::Value;
use crate::words::scattered_keys;

const PART: &str = super::INSTRUCTIONS;

const KEYS: usize = 4_000;

pub fn run(bench: &mut Bench) {
    let ours = per_cycle(true, |_| Some(recipes::prlock())).expect("always there");
    let others: [(&str, Making); 4] = [
        (recipes::PLAIN, |_| Some(recipes::plain())),
        (recipes::EVALSHA, |conn| Some(recipes::evalsha(conn))),
        (recipes::FCALL, |conn| Some(recipes::fcall(conn))),
        (recipes::IFEQ, |_| recipes::ifeq()),
    ];
    for (name, recipe) in others {
        if let Some(theirs) = per_cycle(false, recipe) {
            bench.report.beside(
                PART,
                "claim, renew, release, one key after another",
                Value(ours, ""),
                (name, Value(theirs, "")),
                (Value(ours / theirs, "x"), Target::None),
            );
        }
    }
}

/// Makes a recipe with what it has loaded into the server; none where the server can't do it.
type Making = fn(&mut Conn) -> Option<Recipe>;

/// The instructions of a cycle in a server that has done it once, to get warm; none where the server can't do it.
fn per_cycle(has_module: bool, recipe: Making) -> Option<f64> {
    let valgrind = Valgrind::start(has_module);
    let script = recipe(&mut valgrind.conn())?.key_by_key(scattered_keys(KEYS));
    let mut player = Player::connect(valgrind.port());
    player.play(&script);
    let counted = valgrind.instructions_of(|| player.play(&script));
    Some(counted / KEYS as f64)
}
