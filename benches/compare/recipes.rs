//! How to live through a lock: claim, renew, release, by this module and by what people use today.

use crate::script::{Reply, Script, Step, step};
use crate::support::{Conn, ServerKind, server_kind, text};
use crate::words::{TTL_MS, token};

pub const PRLOCK: &str = "PRLOCK";
pub const PLAIN: &str = "SET NX, PEXPIRE, DEL";
pub const EVALSHA: &str = "SET NX, 2 x EVALSHA";
pub const FCALL: &str = "SET NX, 2 x FCALL";
pub const IFEQ: &str = "SET NX, SET IFEQ, DELIFEQ";

const RENEW: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0";
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

pub struct Recipe {
    pub name: &'static str,
    /// The three commands for a key and a token.
    steps: Box<Steps>,
}

type Steps = dyn Fn(&str, &str) -> [Step; 3];

pub fn prlock() -> Recipe {
    Recipe::new(PRLOCK, |k, t| {
        [
            step(&format!("PRLOCK.CLAIM {k} PX {TTL_MS} TOKEN {t}"), Reply::Grant),
            one(format!("PRLOCK.RENEW {k} {t} PX {TTL_MS}")),
            one(format!("PRLOCK.RELEASE {k} {t}")),
        ]
    })
}

/// Unsafe: anybody's renewal and release succeeds.
pub fn plain() -> Recipe {
    Recipe::new(PLAIN, |k, t| [set_nx(k, t), one(format!("PEXPIRE {k} {TTL_MS}")), one(format!("DEL {k}"))])
}

/// The two scripts that everybody pastes, loaded into the server.
pub fn evalsha(conn: &mut Conn) -> Recipe {
    let [renew, release] = [RENEW, RELEASE].map(|body| text(&conn.ok(("SCRIPT", "LOAD", body))));
    Recipe::new(EVALSHA, move |k, t| {
        [set_nx(k, t), one(format!("EVALSHA {renew} 1 {k} {t} {TTL_MS}")), one(format!("EVALSHA {release} 1 {k} {t}"))]
    })
}

/// The same two as functions.
pub fn fcall(conn: &mut Conn) -> Recipe {
    let function =
        |name: &str, body: &str| format!("redis.register_function('{name}', function(KEYS, ARGV) {body} end)\n");
    let library = format!("#!lua name=locks\n{}{}", function("renew", RENEW), function("release", RELEASE));
    conn.ok(("FUNCTION", "LOAD", "REPLACE", library));
    Recipe::new(FCALL, |k, t| {
        [set_nx(k, t), one(format!("FCALL renew 1 {k} {t} {TTL_MS}")), one(format!("FCALL release 1 {k} {t}"))]
    })
}

/// The newest native way, where the server has it.
pub fn ifeq() -> Option<Recipe> {
    (server_kind() == ServerKind::Valkey9).then(|| {
        Recipe::new(IFEQ, |k, t| {
            [
                set_nx(k, t),
                step(&format!("SET {k} {t} IFEQ {t} PX {TTL_MS}"), Reply::Ok),
                one(format!("DELIFEQ {k} {t}")),
            ]
        })
    })
}

impl Recipe {
    fn new(name: &'static str, steps: impl Fn(&str, &str) -> [Step; 3] + 'static) -> Self {
        Self { name, steps: Box::new(steps) }
    }

    /// Claims, renews and releases the first of the keys, then the next.
    pub fn key_by_key(&self, keys: impl Iterator<Item = String>) -> Script {
        keys.enumerate().flat_map(|(number, key)| (self.steps)(&key, &token(number, 0))).collect()
    }

    /// Claims all keys; renews them all; releases them all.
    pub fn phases(&self, keys: &[String]) -> [Script; 3] {
        [0, 1, 2].map(|at| {
            let step = |(number, key): (usize, &String)| (self.steps)(key, &token(number, 0)).into_iter().nth(at);
            keys.iter().enumerate().filter_map(step).collect()
        })
    }
}

fn set_nx(key: &str, token: &str) -> Step {
    step(&format!("SET {key} {token} NX PX {TTL_MS}"), Reply::Ok)
}

fn one(line: String) -> Step {
    step(&line, Reply::One)
}
