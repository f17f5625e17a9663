//! Many clients that claim, wait, renew, release, steal and repeat, and write down what they were told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use redis::{Cmd, Value};
use serde::{Deserialize, Serialize};

use crate::call::{Answer, Ask, Attempt, Call, Mode, now_us};
use crate::link::{Direct, Link, Reply};
use crate::run::Run;
use crate::support::{Conn, Server, bytes, int, items, map};

/// Before a server that could not be reached is tried again.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a client stands still.
const STALL: Duration = Duration::from_millis(500);

static LAST_ATTEMPT: AtomicU32 = AtomicU32::new(0);

/// In a process that another one started: numbers its attempts from here on, apart from all others.
pub fn number_attempts_from(first: Attempt) {
    LAST_ATTEMPT.store(first, Relaxed);
}

/// What the clients do.
#[derive(Clone, Serialize, Deserialize)]
pub struct Settings {
    pub clients: usize,
    pub keys: usize,
    /// Before the number of a key.
    pub prefix: String,
    /// TTLs are between these.
    pub ttl_ms: (u64, u64),
    /// The longest wait.
    pub block_ms: u64,
    /// Of a hundred claims on a held lock, how many steal.
    pub steals_percent: u32,
    /// Between two calls of a client, at most.
    pub think_us: u64,
    /// Of a thousand calls, before how many a client stands still for longer than its deadline may be.
    pub stalls_permille: u32,
    /// Clients that are about to wait name their connections after the attempt, so that others can see them wait.
    pub names_waits: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let minutes = 60_000;
        Self {
            clients: 8,
            keys: 4,
            prefix: "k".to_owned(),
            ttl_ms: (10 * minutes, 20 * minutes),
            block_ms: 100,
            steals_percent: 5,
            think_us: 500,
            stalls_permille: 0,
            names_waits: false,
        }
    }
}

impl Settings {
    /// No deadline passes during a run.
    pub fn deadlines_are_far(&self) -> bool {
        self.ttl_ms.0 >= 600_000
    }

    pub fn key(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }
}

/// How a client reaches the locks: told its number, it says.
pub type Target = Arc<dyn Fn(usize) -> Box<dyn Link> + Send + Sync>;

/// One server on one port for ever.
pub fn one_server(server: &Server) -> Target {
    on_port(server.port())
}

/// Whoever answers on that port.
pub fn on_port(port: u16) -> Target {
    Arc::new(move |_| Box::new(Direct::new(move || port)))
}

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Call>>>,
}

impl Load {
    /// Sets the clients to work; `round` picks their choices.
    pub fn start(run: &Run, round: u64, settings: &Settings, target: &Target) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..settings.clients)
            .map(|number| {
                let mut client = Client {
                    rng: run.rng(round.wrapping_mul(1_000).wrapping_add(number as u64)),
                    settings: settings.clone(),
                    link: target(number),
                    mine: BTreeMap::new(),
                    old: Vec::new(),
                    calls: Vec::new(),
                };
                let stop = stop.clone();
                std::thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        client.step();
                        let think_us = client.rng.random_range(0..=client.settings.think_us);
                        std::thread::sleep(Duration::from_micros(think_us));
                    }
                    client.calls
                })
            })
            .collect();
        Self { stop, threads }
    }

    /// Tells the clients to stop after the call they are in.
    pub fn tell_to_stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Stops the clients and returns all that they have seen.
    #[track_caller]
    pub fn finish(self) -> Vec<Call> {
        self.tell_to_stop();
        let mut calls = Vec::new();
        for thread in self.threads {
            calls.extend(thread.join().expect("a client"));
        }
        calls.sort_by_key(|call| call.start_us);
        calls
    }
}

struct Client {
    rng: StdRng,
    settings: Settings,
    link: Box<dyn Link>,
    /// What this client thinks it holds, or may hold since the answer was lost.
    mine: BTreeMap<usize, Attempt>,
    /// Claims of its past, for late repeats.
    old: Vec<(usize, Attempt)>,
    calls: Vec<Call>,
}

impl Client {
    fn step(&mut self) {
        let key = self.rng.random_range(0..self.settings.keys);
        let ttl_ms = self.rng.random_range(self.settings.ttl_ms.0..=self.settings.ttl_ms.1);
        let dice = self.rng.random_range(0..100);
        let ask = match self.mine.get(&key) {
            Some(&attempt) => match dice {
                0..45 => Ask::Release { attempt },
                45..75 => Ask::Renew { attempt, ttl_ms },
                75..85 => Ask::Claim { attempt, ttl_ms, mode: Mode::Plain },
                _ => Ask::Look,
            },
            None => match (dice, self.old.last()) {
                (0..4, Some(&(key, attempt))) => return self.call(key, Ask::Release { attempt }),
                (4..8, Some(&(key, attempt))) => return self.call(key, Ask::Renew { attempt, ttl_ms }),
                (8..12, _) => Ask::Look,
                _ => Ask::Claim { attempt: LAST_ATTEMPT.fetch_add(1, Relaxed) + 1, ttl_ms, mode: self.mode() },
            },
        };
        self.call(key, ask);
    }

    fn mode(&mut self) -> Mode {
        let dice = self.rng.random_range(0..100);
        if dice < self.settings.steals_percent {
            Mode::Steal
        } else if dice < 70 && self.settings.block_ms > 0 {
            Mode::Block
        } else {
            Mode::Plain
        }
    }

    fn call(&mut self, key: usize, ask: Ask) {
        let block_ms = self.rng.random_range(1..=self.settings.block_ms.max(1));
        let command = command(&self.settings.key(key), &ask, block_ms);
        if self.rng.random_range(0..1_000) < self.settings.stalls_permille {
            std::thread::sleep(STALL);
        }
        if let Ask::Claim { attempt, mode: Mode::Block, .. } = ask
            && self.settings.names_waits
        {
            // Were it lost, the claim would be too.
            self.link.call(redis::cmd("CLIENT").arg("SETNAME").arg(attempt));
        }
        let start_us = now_us();
        let reply = self.link.call(&command);
        let end_us = if matches!(reply, Reply::Unknown) { u64::MAX } else { now_us() };
        let answer = match reply {
            Reply::NotSent => {
                std::thread::sleep(PAUSE);
                return;
            }
            Reply::Lost | Reply::Unknown => Answer::Lost,
            Reply::Error(code) => Answer::Error(code),
            Reply::Value(value) => answer(&ask, &value),
        };
        match (&ask, &answer) {
            (Ask::Claim { attempt, .. }, Answer::Granted(_) | Answer::Lost) => {
                self.mine.insert(key, *attempt);
            }
            (Ask::Release { attempt } | Ask::Renew { attempt, .. }, Answer::Zero)
            | (Ask::Release { attempt }, Answer::One)
            | (Ask::Claim { attempt, .. }, Answer::Refused)
                if self.mine.get(&key) == Some(attempt) =>
            {
                self.mine.remove(&key);
                self.old.push((key, *attempt));
            }
            _ => {}
        }
        self.calls.push(Call { key, ask, start_us, end_us, answer });
    }
}

fn command(key: &str, ask: &Ask, block_ms: u64) -> Cmd {
    let mut cmd = Cmd::new();
    match ask {
        Ask::Claim { attempt, ttl_ms, mode } => {
            cmd.arg("PRLOCK.CLAIM").arg(key).arg("PX").arg(*ttl_ms).arg("TOKEN").arg(token(*attempt));
            cmd.arg("HOLDER").arg(attempt.to_string());
            match mode {
                Mode::Plain => {}
                Mode::Block => _ = cmd.arg("BLOCK").arg(block_ms),
                Mode::Steal => _ = cmd.arg("STEAL"),
            }
        }
        Ask::Renew { attempt, ttl_ms } => {
            cmd.arg("PRLOCK.RENEW").arg(key).arg(token(*attempt)).arg("PX").arg(*ttl_ms);
        }
        Ask::Release { attempt } => _ = cmd.arg("PRLOCK.RELEASE").arg(key).arg(token(*attempt)),
        Ask::Look => _ = cmd.arg("PRLOCK.INFO").arg(key),
    }
    cmd
}

fn token(attempt: Attempt) -> String {
    format!("token-{attempt}")
}

/// What a reply says to the one who asked.
#[track_caller]
pub fn answer(ask: &Ask, value: &Value) -> Answer {
    match ask {
        Ask::Claim { attempt, .. } => match value {
            Value::Nil => Answer::Refused,
            grant => {
                let grant = items(grant);
                assert_eq!(bytes(&grant[0]), token(*attempt).as_bytes(), "another's token");
                Answer::Granted(int(&grant[1]).try_into().expect("a fence"))
            }
        },
        Ask::Renew { .. } | Ask::Release { .. } => match int(value) {
            1 => Answer::One,
            0 => Answer::Zero,
            other => panic!("neither 1 nor 0: {other}"),
        },
        Ask::Look => Answer::Seen(seen(value)),
    }
}

/// What PRLOCK.INFO says, or a row of PRLOCK.LIST.
#[track_caller]
pub fn seen(value: &Value) -> Option<(Attempt, u64)> {
    if *value == Value::Nil {
        return None;
    }
    let lock = map(value);
    let attempt = String::from_utf8(bytes(&lock["holder"])).expect("an attempt's label");
    Some((attempt.parse().expect("an attempt's number"), int(&lock["fence"]).try_into().expect("a fence")))
}

/// What CLIENT LIST says, each time it is asked; nothing while the server or the connection is gone.
pub fn watcher(port: u16) -> impl FnMut() -> Option<String> {
    let mut link = Direct::new(move || port);
    move || match link.call(redis::cmd("CLIENT").arg("LIST")) {
        Reply::Value(list) => Some(crate::support::text(&list)),
        _ => None,
    }
}

/// A look at every lock, at leisure. Panics if LIST does not say the same as the keyspace.
#[track_caller]
pub fn audit(port: u16, settings: &Settings) -> Vec<Call> {
    let mut conn = Conn::open(port, Conn::resp2()).expect("connect to the server");
    let mut listed = BTreeMap::new();
    for row in items(&conn.ok(("PRLOCK.LIST", "MATCH", format!("{}*", settings.prefix)))) {
        let lock = map(&row);
        listed.insert(String::from_utf8(bytes(&lock["key"])).expect("a key"), seen(&row));
    }
    let mut calls = Vec::new();
    for key in 0..settings.keys {
        let name = settings.key(key);
        let start_us = now_us();
        let mut found = seen(&conn.ok(("PRLOCK.INFO", &*name)));
        let exists = conn.ok(("EXISTS", &*name)) == Value::Int(1);
        if found.is_some() && !exists {
            // It may have lapsed in between, and is then gone for good.
            found = seen(&conn.ok(("PRLOCK.INFO", &*name)));
        }
        assert_eq!(exists, found.is_some(), "EXISTS and PRLOCK.INFO of {name}");
        let in_list = listed.remove(&name).flatten();
        // A lock may have lapsed since the list was made.
        if found.is_some() {
            assert_eq!(in_list, found, "LIST and INFO of {name}");
        }
        let answer = Answer::Seen(found);
        calls.push(Call { key, ask: Ask::Look, start_us, end_us: now_us(), answer });
    }
    assert!(listed.is_empty(), "LIST has locks that nobody made: {listed:?}");
    calls
}
