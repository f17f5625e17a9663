//! Claim, renew, release: the life of a lock, beside the commands and scripts that make locks today.

use crate::options::Options;
use crate::report::{Report, Target, Value};
use crate::rounds::{Series, contender, interleave, named};
use crate::script::{Script, Step, reply, step};
use crate::subject::Subject;
use crate::support::{Server, ServerKind, server_kind, text};
use crate::words::{TTL_MS, key, scattered, token};

const PART: &str = "cycle";

const KEYS: usize = 100_000;
/// With an append-only file every round writes all its changes to the disk.
const KEYS_WITH_AOF: usize = 30_000;

const RENEW: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0";
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

pub fn run(options: &Options, report: &mut Report) {
    let shapes = [("one key after another", Shape::KeyByKey), ("all held at once", Shape::HeldAtOnce)];
    for (title, shape) in shapes {
        let arena = Arena::new(&[]);
        arena.compare(options, report, title, KEYS, shape, true);
    }
    let arena = Arena::new(&[("appendonly", "yes"), ("appendfsync", "everysec"), ("auto-aof-rewrite-percentage", "0")]);
    arena.compare(options, report, "with an append-only file", KEYS_WITH_AOF, Shape::KeyByKey, false);
}

/// In which order a script goes through the keys.
#[derive(Clone, Copy)]
enum Shape {
    /// Claim, renew and release a key, then the next.
    KeyByKey,
    /// Claim all, renew all, release all.
    HeldAtOnce,
}

/// The two servers: this module is in one of them, and all that it is compared with runs in the other.
struct Arena {
    module: Subject,
    bare: Subject,
    scripts: [String; 2],
}

impl Arena {
    fn new(settings: &[(&str, &str)]) -> Self {
        let with_settings =
            || settings.iter().fold(Server::builder(), |builder, (name, value)| builder.config(name, value));
        let module = Subject::of(with_settings());
        let bare = Subject::of(with_settings().without_module());
        let scripts = [RENEW, RELEASE].map(|body| text(&bare.ask(|conn| conn.ok(("SCRIPT", "LOAD", body)))));
        bare.ask(|conn| conn.ok(("FUNCTION", "LOAD", library())));
        Self { module, bare, scripts }
    }

    fn compare(
        &self,
        options: &Options,
        report: &mut Report,
        title: &str,
        keys: usize,
        shape: Shape,
        has_targets: bool,
    ) {
        let [renew, release] = &self.scripts;
        let set = |key: &str, token: &str| step(&format!("SET {key} {token} NX PX {TTL_MS}"), reply::OK);
        let digit = |line: String| step(&line, reply::DIGIT);
        let prlock = script(keys, shape, |k, t| {
            [
                step(&format!("PRLOCK.CLAIM {k} PX {TTL_MS} TOKEN {t}"), reply::GRANT),
                digit(format!("PRLOCK.RENEW {k} {t} PX {TTL_MS}")),
                digit(format!("PRLOCK.RELEASE {k} {t}")),
            ]
        });
        let plain =
            script(keys, shape, |k, t| [set(k, t), digit(format!("PEXPIRE {k} {TTL_MS}")), digit(format!("DEL {k}"))]);
        let evalsha = script(keys, shape, |k, t| {
            [
                set(k, t),
                digit(format!("EVALSHA {renew} 1 {k} {t} {TTL_MS}")),
                digit(format!("EVALSHA {release} 1 {k} {t}")),
            ]
        });
        let fcall = script(keys, shape, |k, t| {
            [set(k, t), digit(format!("FCALL renew 1 {k} {t} {TTL_MS}")), digit(format!("FCALL release 1 {k} {t}"))]
        });
        let ifeq = (server_kind() == ServerKind::Valkey9).then(|| {
            script(keys, shape, |k, t| {
                [
                    set(k, t),
                    step(&format!("SET {k} {t} IFEQ {t} PX {TTL_MS}"), reply::OK),
                    digit(format!("DELIFEQ {k} {t}")),
                ]
            })
        });
        let us_per_cycle = |subject: &Subject, script: &Script| subject.us_per_command(script) * 3.0;
        let mut contenders = vec![
            contender("PRLOCK", || us_per_cycle(&self.module, &prlock)),
            contender("SET NX, PEXPIRE, DEL", || us_per_cycle(&self.bare, &plain)),
            contender("SET NX, 2 x EVALSHA", || us_per_cycle(&self.bare, &evalsha)),
            contender("SET NX, 2 x FCALL", || us_per_cycle(&self.bare, &fcall)),
        ];
        if let Some(ifeq) = &ifeq {
            contenders.push(contender("SET NX, SET IFEQ, DELIFEQ", || us_per_cycle(&self.bare, ifeq)));
        }
        let all = interleave(options.rounds, contenders);
        for other in &all[1..] {
            let target = if has_targets { target(other) } else { Target::None };
            let ours = named(&all, "PRLOCK");
            report.beside(
                PART,
                format!("claim, renew, release, {title}"),
                Value(ours.median(), "µs"),
                (other.name, Value(other.median(), "µs")),
                (Value(ours.ratio_to(other), "x"), target),
            );
        }
    }
}

fn target(other: &Series) -> Target {
    Target::AtMost(match other.name {
        "SET NX, PEXPIRE, DEL" => 1.15,
        "SET NX, SET IFEQ, DELIFEQ" => 1.0,
        _ => 0.40,
    })
}

/// The three commands for each key, in the order of `shape`.
fn script(keys: usize, shape: Shape, steps_for: impl Fn(&str, &str) -> [Step; 3]) -> Script {
    let cycle = |number| steps_for(&key(number), &token(number, 0));
    match shape {
        Shape::KeyByKey => scattered(keys).flat_map(cycle).collect(),
        Shape::HeldAtOnce => {
            let phase = |at: usize| scattered(keys).map(move |number| (number, at));
            (0..3).flat_map(phase).map(|(number, at)| cycle(number).into_iter().nth(at).expect("three steps")).collect()
        }
    }
}

/// The same two scripts as functions.
fn library() -> String {
    let function =
        |name: &str, body: &str| format!("redis.register_function('{name}', function(KEYS, ARGV) {body} end)\n");
    format!("#!lua name=locks\n{}{}", function("renew", RENEW), function("release", RELEASE))
}
