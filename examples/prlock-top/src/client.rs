//! The server: what is asked of it, and how a lock is freed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, ConnectionLike as _, Value};

use crate::lock::Lock;
use crate::options::Target;
use crate::problem::Problem;

/// How long a connection or a reply may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often freeing starts over when the lock is renewed at that very moment.
const FREE_ATTEMPTS: usize = 10;
/// The holder that events show while a lock is freed.
const OWN_HOLDER: &str = "prlock-top";

/// Which server answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// `Redis 7.0.15`.
    pub version: String,
    pub is_primary: bool,
    /// It serves a part of the keys only.
    pub is_cluster: bool,
}

/// The fields of `INFO prlock`, without the module's name before them.
pub type Counters = BTreeMap<String, u64>;

/// Keys, and the lock under each if there is one.
pub type Looked = Vec<(Vec<u8>, Option<Lock>)>;

/// Which locks to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub pattern: Option<Vec<u8>>,
    pub holder: Option<Vec<u8>>,
}

/// How an attempt to free a lock ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freed {
    Free,
    /// The first of those who waited has it now.
    HandedOn,
    /// It was free already; nothing was done.
    WasFree,
    /// Somebody has it by a newer grant; nothing was done.
    Newer {
        holder: Vec<u8>,
        fence: u64,
    },
    /// It is renewed all the time; nothing was done.
    Busy,
}

pub struct Client {
    conn: Connection,
    target: Target,
}

impl Client {
    pub fn open(target: &Target) -> Result<Self, Problem> {
        let problem = |error| Problem::of(&error, &target.address, &target.user);
        let conn = target.client.get_connection_with_timeout(PATIENCE).map_err(problem)?;
        conn.set_read_timeout(Some(PATIENCE)).map_err(problem)?;
        conn.set_write_timeout(Some(PATIENCE)).map_err(problem)?;
        Ok(Self { conn, target: target.clone() })
    }

    /// What INFO says of the server and of the module.
    pub fn info(&mut self) -> Result<(Node, Counters), Problem> {
        let reply = self.call(Cmd::new().arg("INFO").arg("server").arg("replication").arg("prlock"))?;
        let text = crate::lock::bytes(&reply).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        let version = match field("valkey_version") {
            "" => format!("Redis {}", field("redis_version")),
            version => format!("Valkey {version}"),
        };
        let mode = [field("redis_mode"), field("server_mode")];
        let node = Node { version, is_primary: field("role") == "master", is_cluster: mode.contains(&"cluster") };
        let counters = fields
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("prlock_")?.to_owned(), value.parse().ok()?)))
            .collect();
        Ok((node, counters))
    }

    /// Up to `count` locks behind the key `after`.
    pub fn page(&mut self, filter: &Filter, after: Option<&[u8]>, count: usize) -> Result<Vec<Lock>, Problem> {
        let mut command = Cmd::new();
        command.arg("PRLOCK.LIST").arg("COUNT").arg(count);
        for (word, value) in
            [("MATCH", filter.pattern.as_deref()), ("HOLDER", filter.holder.as_deref()), ("AFTER", after)]
        {
            if let Some(value) = value {
                command.arg(word).arg(value);
            }
        }
        let reply = self.call(&command)?;
        let seen = Instant::now();
        let Value::Array(maps) = reply else { return Err(strange("PRLOCK.LIST")) };
        maps.iter().map(|map| Lock::parse(map, seen).ok_or_else(|| strange("PRLOCK.LIST"))).collect()
    }

    /// What these keys hold now. A key of which the server does not tell is left out.
    pub fn look(&mut self, keys: &[Vec<u8>]) -> Result<Looked, Problem> {
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.cmd("PRLOCK.INFO").arg(key);
        }
        let replies = self.conn.req_packed_commands(&pipe.get_packed_pipeline(), 0, keys.len());
        let replies = replies.map_err(|error| self.problem(&error))?;
        let seen = Instant::now();
        let told = keys.iter().zip(replies).filter_map(|(key, reply)| match reply {
            Value::Nil => Some((key.clone(), None)),
            reply => Lock::parse(&reply, seen).map(|lock| (key.clone(), Some(lock))),
        });
        Ok(told.collect())
    }

    /// Frees the lock if it still is the grant with this fence; whoever waits for it gets it at once.
    ///
    /// The lock is taken over from just this grant and released in one MULTI, so that nobody sees it in between. WATCH
    /// makes sure that nothing at all happens when it is no longer this grant.
    pub fn free(&mut self, key: &[u8], fence: u64) -> Result<Freed, Problem> {
        for _ in 0..FREE_ATTEMPTS {
            self.call(Cmd::new().arg("WATCH").arg(key))?;
            match self.free_watched(key, fence) {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => {}
                Err(problem) => {
                    if !problem.is_fatal_to_connection {
                        _ = self.call(Cmd::new().arg("UNWATCH"));
                    }
                    return Err(problem);
                }
            }
        }
        Ok(Freed::Busy)
    }

    /// None if the key changed meanwhile.
    fn free_watched(&mut self, key: &[u8], fence: u64) -> Result<Option<Freed>, Problem> {
        let reply = self.call(Cmd::new().arg("PRLOCK.INFO").arg(key))?;
        let now = Instant::now();
        let untouched = match Lock::parse(&reply, now) {
            None => Some(Freed::WasFree),
            Some(held) if held.fence != fence => Some(Freed::Newer { holder: held.holder, fence: held.fence }),
            Some(_) => None,
        };
        if untouched.is_some() {
            self.call(Cmd::new().arg("UNWATCH"))?;
            return Ok(untouched);
        }
        let token = own_token();
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("PRLOCK.CLAIM").arg(key).arg("PX").arg(1_000).arg("TOKEN").arg(&token);
        pipe.arg("HOLDER").arg(OWN_HOLDER).arg("STEALIF").arg(fence);
        pipe.cmd("PRLOCK.RELEASE").arg(key).arg(&token);
        pipe.cmd("PRLOCK.INFO").arg(key);
        let reply: Value = pipe.query(&mut self.conn).map_err(|error| self.problem(&error))?;
        match reply {
            Value::Nil => Ok(None),
            Value::Array(replies) => {
                if let Some(Value::ServerError(error)) =
                    replies.iter().find(|reply| matches!(reply, Value::ServerError(_)))
                {
                    return Err(Problem::of_server(error, &self.target.user));
                }
                match replies.as_slice() {
                    [_, Value::Int(1), Value::Nil] => Ok(Some(Freed::Free)),
                    [_, Value::Int(1), _] => Ok(Some(Freed::HandedOn)),
                    _ => Err(strange("EXEC")),
                }
            }
            _ => Err(strange("EXEC")),
        }
    }

    fn call(&mut self, command: &Cmd) -> Result<Value, Problem> {
        match self.conn.req_command(command) {
            Ok(Value::ServerError(error)) => Err(Problem::of_server(&error, &self.target.user)),
            Ok(value) => Ok(value),
            Err(error) => Err(self.problem(&error)),
        }
    }

    fn problem(&self, error: &redis::RedisError) -> Problem {
        Problem::of(error, &self.target.address, &self.target.user)
    }
}

fn strange(command: &str) -> Problem {
    Problem::new(format!("{command} gave a reply of an unknown form: is the module of another version?"))
}

/// A token for the moment in which a lock is taken over to be released: one that nobody else uses.
fn own_token() -> Vec<u8> {
    use std::hash::{BuildHasher as _, RandomState};
    // Each state has keys from the system's generator.
    let [first, second] = std::array::from_fn(|index| RandomState::new().hash_one((std::process::id(), index)));
    format!("prlock-top-{first:016x}{second:016x}").into_bytes()
}
