//! How many instructions commands take, and how often they reach for the memory, and where: numbers that no mood of the
//! machine changes. Only with CALLGRIND=1.

use crate::bench::Bench;
use crate::fill;
use crate::profile::Profile;
use crate::recipes::{self, Recipe};
use crate::report::Target;
use crate::script::{Player, Reply, Script, Step, step};
use crate::support::Conn;
use crate::valgrind::{Count, Valgrind};
use crate::value::Value;
use crate::words::{TTL_MS, scattered_keys, token};

const PART: &str = super::INSTRUCTIONS;

const KEYS: usize = 4_000;
/// Held at once: many times what the caches hold, though not so many that counting takes long.
const HELD: usize = 20_000;

/// The module's own code, by the end of its path, and the server's functions that it calls, by the start of their names.
const MODULE: &str = "libprlock.so";
const API: &str = "RM_";

/// Functions of the API that cost less than this in a cycle are shown as one sum.
const LEAST_SHOWN: f64 = 150.0;
/// The same for what reaches the memory.
const LEAST_MISSES_SHOWN: f64 = 0.5;

pub fn run(bench: &mut Bench) {
    tell(bench, "claim, renew, release, one key after another", KEYS, LEAST_SHOWN, per_cycle);
    let what = "the same with 20,000 held at once, reads and writes that no cache holds";
    tell(bench, what, HELD, LEAST_MISSES_SHOWN, per_cycle_of_held);
    refused(bench);
    start(bench);
}

/// What `measure` says of this module's cycle beside the others, and where it goes.
fn tell(bench: &mut Bench, what: &str, cycles: usize, least_shown: f64, measure: fn(bool, Making) -> Option<Profile>) {
    let ours = measure(true, |_| Some(recipes::prlock())).expect("always there");
    let per_cycle_of = |cost: f64| cost / cycles as f64;
    let total = per_cycle_of(ours.total);
    let others: [(&str, Making); 4] = [
        (recipes::PLAIN, |_| Some(recipes::plain())),
        (recipes::EVALSHA, |conn| Some(recipes::evalsha(conn))),
        (recipes::FCALL, |conn| Some(recipes::fcall(conn))),
        (recipes::IFEQ, |_| recipes::ifeq()),
    ];
    for (name, recipe) in others {
        if let Some(theirs) = measure(false, recipe) {
            let theirs = per_cycle_of(theirs.total);
            bench.report.beside(
                PART,
                what,
                Value(total, ""),
                (name, Value(theirs, "")),
                (Value(total / theirs, "x"), Target::None),
            );
        }
    }
    let mut alone = |what: String, cost: f64| bench.report.alone(PART, what, Value(cost, ""), Target::None);
    let own = per_cycle_of(ours.own(MODULE));
    alone("of that the module's own code".to_owned(), own);
    let (mut api, mut rest) = (0.0, 0.0);
    for (name, cost) in ours.called(MODULE, API) {
        let cost = per_cycle_of(cost);
        api += cost;
        if cost >= least_shown {
            alone(format!("of that {name}"), cost);
        } else {
            rest += cost;
        }
    }
    alone("of that other functions that the module calls".to_owned(), rest);
    alone("of that the server itself: reading, checking, dispatching, writing".to_owned(), total - own - api);
}

/// What a start takes for each lock in its snapshot, and where.
fn start(bench: &mut Bench) {
    let per_key = |cost: f64| cost / HELD as f64;
    let (ours, theirs) = (loading(true, fill::lock), loading(false, fill::string));
    let (total, bare) = (per_key(ours.total), per_key(theirs.total));
    bench.report.beside(
        PART,
        "loading a lock from a snapshot",
        Value(total, ""),
        ("a string with expiry", Value(bare, "")),
        (Value(total / bare, "x"), Target::None),
    );
    let mut alone = |what: String, cost: f64| bench.report.alone(PART, what, Value(cost, ""), Target::None);
    let own = per_key(ours.own(MODULE));
    alone("of that the module's own code, most of it the registry's two sorts".to_owned(), own);
    let mut api = 0.0;
    for (name, cost) in ours.called(MODULE, API) {
        api += per_key(cost);
        if per_key(cost) >= LEAST_SHOWN / 3.0 {
            alone(format!("of that {name}"), per_key(cost));
        }
    }
    alone("of that the server itself".to_owned(), total - own - api);
}

/// The load of a snapshot of [`HELD`] keys, of which `made` makes each.
fn loading(has_module: bool, made: fn(usize, usize) -> Step) -> Profile {
    let valgrind = Valgrind::start(has_module, Count::Instructions);
    let script: Script = (0..HELD).map(|number| made(number, HELD)).collect();
    Player::connect(valgrind.port()).play(&script);
    let mut conn = valgrind.conn();
    conn.ok(("SAVE",));
    conn.ok(("FLUSHALL", "SYNC"));
    valgrind.profile_of(|| {
        conn.ok(("DEBUG", "RELOAD", "NOSAVE"));
        assert_eq!(conn.int("DBSIZE"), HELD as i64);
    })
}

/// Each of these is refused, since another token holds the key.
fn refused(bench: &mut Bench) {
    let (holder, stranger) = (token(0, 1), token(0, 2));
    let claim = |token: &str| format!("PRLOCK.CLAIM k PX {TTL_MS} TOKEN {token}");
    let set_nx = |token: &str| format!("SET k {token} NX PX {TTL_MS}");
    let theirs = per_refusal(false, (&set_nx(&holder), Reply::Ok), (&set_nx(&stranger), Reply::Null));
    for (name, line, reply) in [
        ("CLAIM", claim(&stranger), Reply::Null),
        ("RENEW", format!("PRLOCK.RENEW k {stranger} PX {TTL_MS}"), Reply::Zero),
        ("RELEASE", format!("PRLOCK.RELEASE k {stranger}"), Reply::Zero),
    ] {
        let ours = per_refusal(true, (&claim(&holder), Reply::Grant), (&line, reply));
        bench.report.beside(
            PART,
            format!("a refused {name}"),
            Value(ours, ""),
            ("a refused SET NX", Value(theirs, "")),
            (Value(ours / theirs, "x"), Target::None),
        );
    }
}

/// Makes a recipe with what it has loaded into the server; none where the server can't do it.
type Making = fn(&mut Conn) -> Option<Recipe>;

/// All cycles in a server that has done them once, to get warm; none where the server can't do it.
fn per_cycle(has_module: bool, recipe: Making) -> Option<Profile> {
    let valgrind = Valgrind::start(has_module, Count::Instructions);
    let script = recipe(&mut valgrind.conn())?.key_by_key(scattered_keys(KEYS));
    Some(warm(valgrind, &script))
}

/// What reaches the memory in claims of all keys, then renewals of all, then releases of all.
fn per_cycle_of_held(has_module: bool, recipe: Making) -> Option<Profile> {
    let valgrind = Valgrind::start(has_module, Count::Misses);
    let keys: Vec<String> = scattered_keys(HELD).collect();
    let phases = recipe(&mut valgrind.conn())?.phases(&keys);
    let mut player = Player::connect(valgrind.port());
    // Once before, so that tables have grown to their size.
    phases.iter().for_each(|phase| player.play(phase));
    Some(valgrind.profile_of(|| phases.iter().for_each(|phase| player.play(phase))))
}

/// One command that is refused again and again.
fn per_refusal(has_module: bool, held: (&str, Reply), refused: (&str, Reply)) -> f64 {
    let valgrind = Valgrind::start(has_module, Count::Instructions);
    Player::connect(valgrind.port()).play(&std::iter::once(step(held.0, held.1)).collect());
    let script: Script = (0..KEYS).map(|_| step(refused.0, refused.1)).collect();
    warm(valgrind, &script).total / KEYS as f64
}

fn warm(valgrind: Valgrind, script: &Script) -> Profile {
    let mut player = Player::connect(valgrind.port());
    player.play(script);
    valgrind.profile_of(|| player.play(script))
}
