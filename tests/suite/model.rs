//! Random commands of all sorts against a model of the server, in two databases: every reply, and then LIST, INFO and the
//! gauges, are what the model says.
//!
//! `PRLOCK_MODEL_SECONDS` runs it for longer than its few seconds; `PRLOCK_SEED` repeats a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::RngExt;

use crate::support::{Conn, SeededRng, Server, Value, bytes, int, items, map, seeded_rng};

const KEYS: [&str; 7] = ["a", "b", "c", "ab", "a\0\u{ff}", "k*", ""];
const TOKENS: [&str; 4] = ["t", "u", "tt", "0123456789abcdef0123456789abcdef"];
const HOLDERS: [&str; 4] = ["", "h", "h2", "other"];
const DBS: [i64; 3] = [0, 3, 7];

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Lock { token: Vec<u8>, holder: Vec<u8>, fence: i64, renewals: i64, linger_ms: i64 },
    Text(Vec<u8>),
    List,
}

/// A key: what lies there, and until when it does (Unix time in ms, -1 for ever). The deadline is the server's own word,
/// asked for after each change of it.
#[derive(Clone, Debug)]
struct Entry {
    content: Content,
    until_ms: i64,
}

type Db = BTreeMap<Vec<u8>, Entry>;

struct Model {
    conn: Conn,
    dbs: BTreeMap<i64, Db>,
    /// The selected database.
    db: i64,
    last_fence: i64,
    /// What was done last, for a failure.
    history: Vec<String>,
}

impl Model {
    fn new(server: &Server) -> Self {
        let dbs = DBS.into_iter().map(|db| (db, Db::new())).collect();
        Self { conn: server.conn(), dbs, db: 0, last_fence: 0, history: Vec::new() }
    }

    fn now_ms(&mut self) -> i64 {
        self.conn.time_ms()
    }

    fn call(&mut self, words: &[&[u8]]) -> Result<Value, String> {
        let line: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let reply = self.conn.call(words);
        let short = match &reply {
            Ok(Value::BulkString(long)) if long.len() > 40 => "a payload".to_owned(),
            other => format!("{other:?}"),
        };
        self.history.push(format!("{} [{}] -> {short}", line.join(" "), self.db));
        if self.history.len() > 60 {
            self.history.remove(0);
        }
        reply
    }

    fn here(&mut self) -> &mut Db {
        self.dbs.get_mut(&self.db).expect("a database of the model")
    }

    /// Whether the key is there. A deadline within the time that a command takes makes both answers right: such keys are
    /// waited for before they are used.
    fn get(&mut self, key: &[u8]) -> Option<Entry> {
        let until_ms = self.here().get(key)?.until_ms;
        if until_ms >= 0 {
            let now_ms = self.now_ms();
            if until_ms < now_ms + 200 {
                self.conn.wait_past(until_ms);
                self.here().remove(key);
                return None;
            }
        }
        self.here().get(key).cloned()
    }

    /// The deadline as the server has it, which must be about what was asked for.
    fn check_deadline(&mut self, key: &[u8], ttl_ms: i64) -> i64 {
        let until_ms = int(&self.call(&[b"PEXPIRETIME", key]).expect("a deadline"));
        if ttl_ms < 0 {
            assert_eq!(until_ms, -1);
            return -1;
        }
        if until_ms == -2 {
            // A tiny one, over already.
            assert!(ttl_ms < 1_000, "the key has gone before its time");
            return 0;
        }
        let now_ms = self.now_ms();
        assert!(until_ms <= now_ms + ttl_ms && until_ms > now_ms + ttl_ms - 20_000, "a deadline that nobody asked for");
        until_ms
    }

    fn claim(&mut self, rng: &mut SeededRng) {
        let (key, token, holder) = (pick(rng, &KEYS), pick(rng, &TOKENS), pick(rng, &HOLDERS));
        let ttl_ms = ttl(rng);
        let linger_ms = if rng.random_range(0..4) == 0 { 600_000 } else { -1 };
        let found = self.get(&key);
        let current = match found.as_ref().map(|entry| &entry.content) {
            Some(Content::Lock { fence, .. }) => *fence,
            _ => 5,
        };
        let steal = rng.random_range(0..5);
        let steal_if = if rng.random() { current } else { current + 1 };
        let (ttl_text, linger_text, fence_text) = (ttl_ms.to_string(), linger_ms.to_string(), steal_if.to_string());
        let mut words: Vec<&[u8]> =
            vec![b"PRLOCK.CLAIM", &key, b"PX", ttl_text.as_bytes(), b"TOKEN", &token, b"HOLDER", &holder];
        if linger_ms >= 0 {
            words.extend([&b"LINGER"[..], linger_text.as_bytes()]);
        }
        match steal {
            0 => words.push(b"STEAL"),
            1 => words.extend([&b"STEALIF"[..], fence_text.as_bytes()]),
            _ => {}
        }
        let reply = self.call(&words);
        let lock = |fence, renewals| Content::Lock {
            token: token.clone(),
            holder: holder.clone(),
            fence,
            renewals,
            linger_ms,
        };
        let due = match found.as_ref().map(|entry| &entry.content) {
            None => Some(None),
            Some(Content::Lock { token: held, fence, renewals, .. }) if *held == token => {
                Some(Some((*fence, *renewals)))
            }
            Some(Content::Lock { fence, .. }) => (steal == 0 || steal == 1 && steal_if == *fence).then_some(None),
            Some(Content::Text(_)) => (steal == 0).then_some(None),
            Some(Content::List) => {
                assert!(reply.expect_err("a list").starts_with("WRONGTYPE"));
                return;
            }
        };
        let reply = reply.expect("no error");
        let Some(again) = due else {
            assert_eq!(reply, Value::Nil);
            return;
        };
        let granted = items(&reply);
        assert_eq!(bytes(&granted[0]), token);
        let fence = int(&granted[1]);
        let content = match again {
            Some((same, renewals)) => {
                assert_eq!(fence, same);
                lock(fence, renewals)
            }
            None => {
                assert!(fence > self.last_fence, "a fence that does not rise");
                self.last_fence = fence;
                lock(fence, 0)
            }
        };
        let until_ms = self.check_deadline(&key, ttl_ms);
        self.here().insert(key, Entry { content, until_ms });
    }

    fn renew(&mut self, rng: &mut SeededRng) {
        let (key, token, ttl_ms) = (pick(rng, &KEYS), pick(rng, &TOKENS), ttl(rng));
        let found = self.get(&key);
        let fence = self.some_fence(rng, found.as_ref());
        let text = (ttl_ms.to_string(), fence.map(|fence| fence.to_string()));
        let mut words: Vec<&[u8]> = vec![b"PRLOCK.RENEW", &key, &token, b"PX", text.0.as_bytes()];
        if let Some(fence) = &text.1 {
            words.extend([&b"FENCE"[..], fence.as_bytes()]);
        }
        let reply = self.call(&words);
        let Some(is_mine) = self.is_mine(found.as_ref(), &token, fence, reply) else { return };
        if is_mine {
            let until_ms = self.check_deadline(&key, ttl_ms);
            let entry = self.here().get_mut(&key).expect("the key");
            entry.until_ms = until_ms;
            if let Content::Lock { renewals, .. } = &mut entry.content {
                *renewals += 1;
            }
        }
    }

    fn release(&mut self, rng: &mut SeededRng) {
        let (key, token) = (pick(rng, &KEYS), pick(rng, &TOKENS));
        let found = self.get(&key);
        let fence = self.some_fence(rng, found.as_ref());
        let text = fence.map(|fence| fence.to_string());
        let mut words: Vec<&[u8]> = vec![b"PRLOCK.RELEASE", &key, &token];
        if let Some(fence) = &text {
            words.extend([&b"FENCE"[..], fence.as_bytes()]);
        }
        let reply = self.call(&words);
        if self.is_mine(found.as_ref(), &token, fence, reply) == Some(true) {
            self.here().remove(&key);
        }
    }

    fn some_fence(&self, rng: &mut SeededRng, found: Option<&Entry>) -> Option<i64> {
        match (rng.random_range(0..4), found.map(|entry| &entry.content)) {
            (0, Some(Content::Lock { fence, .. })) => Some(*fence),
            (1, _) => Some(self.last_fence + 1),
            _ => None,
        }
    }

    /// Whether RENEW and RELEASE act, checked against the reply; none for another type.
    fn is_mine(
        &self,
        found: Option<&Entry>,
        token: &[u8],
        fence: Option<i64>,
        reply: Result<Value, String>,
    ) -> Option<bool> {
        let is_mine = match found.map(|entry| &entry.content) {
            None => false,
            Some(Content::Lock { token: held, fence: held_fence, .. }) => {
                held == token && fence.is_none_or(|fence| fence == *held_fence)
            }
            Some(Content::Text(text)) => text == token && fence.is_none(),
            Some(Content::List) => {
                assert!(reply.expect_err("a list").starts_with("WRONGTYPE"));
                return None;
            }
        };
        assert_eq!(reply, Ok(Value::Int(i64::from(is_mine))));
        Some(is_mine)
    }

    fn revoke(&mut self, rng: &mut SeededRng) {
        let holder = pick(rng, &HOLDERS);
        if holder.is_empty() {
            assert!(self.call(&[b"PRLOCK.REVOKE", b""]).is_err());
            return;
        }
        let keys: Vec<Vec<u8>> = self.here().keys().cloned().collect();
        let mine: Vec<Vec<u8>> = keys
            .into_iter()
            .filter(|key| {
                let found = self.get(key);
                matches!(found, Some(Entry { content: Content::Lock { holder: label, .. }, .. }) if label == holder)
            })
            .collect();
        let reply = self.call(&[b"PRLOCK.REVOKE", &holder]);
        assert_eq!(reply, Ok(Value::Int(mine.len() as i64)));
        for key in mine {
            self.here().remove(&key);
        }
    }

    /// A command on keys that knows nothing of locks.
    fn keyspace(&mut self, rng: &mut SeededRng) {
        let (key, other) = (pick(rng, &KEYS), pick(rng, &KEYS));
        let found = self.get(&key);
        let over = self.get(&other);
        let to = DBS[rng.random_range(0..DBS.len())];
        let to_text = to.to_string();
        match rng.random_range(0..22) {
            0 | 1 => {
                let command: &[u8] = if rng.random() { b"DEL" } else { b"UNLINK" };
                assert_eq!(self.call(&[command, &key]), Ok(Value::Int(i64::from(found.is_some()))));
                self.here().remove(&key);
            }
            2 => {
                let text = pick(rng, &TOKENS);
                self.call(&[b"SET", &key, &text, b"PX", b"600000"]).expect("SET");
                let until_ms = self.check_deadline(&key, 600_000);
                self.here().insert(key, Entry { content: Content::Text(text), until_ms });
            }
            3 => {
                self.call(&[b"DEL", &key]).expect("DEL");
                self.call(&[b"RPUSH", &key, b"x"]).expect("RPUSH");
                self.here().insert(key, Entry { content: Content::List, until_ms: -1 });
            }
            4..=7 => {
                let only_new = rng.random();
                let reply = self.call(&[if only_new { b"RENAMENX" } else { b"RENAME" }, &key, &other]);
                let Some(entry) = found else {
                    assert!(reply.is_err());
                    return;
                };
                if only_new {
                    assert_eq!(reply, Ok(Value::Int(i64::from(over.is_none()))));
                }
                if !only_new || over.is_none() {
                    self.here().remove(&key);
                    self.here().insert(other, entry);
                }
            }
            8 | 9 => {
                let home = self.db;
                self.db = to;
                let taken = {
                    self.call(&[b"SELECT", to_text.as_bytes()]).expect("SELECT");
                    self.get(&key).is_some()
                };
                self.db = home;
                self.call(&[b"SELECT", home.to_string().as_bytes()]).expect("SELECT");
                let reply = self.call(&[b"MOVE", &key, to_text.as_bytes()]);
                if to == home {
                    assert!(reply.is_err());
                    return;
                }
                let moves = found.is_some() && !taken;
                assert_eq!(reply, Ok(Value::Int(i64::from(moves))));
                if moves {
                    self.here().remove(&key);
                    self.dbs.get_mut(&to).expect("a database").insert(key, found.expect("the key"));
                }
            }
            10 | 11 => {
                let from = self.db;
                self.call(&[b"SWAPDB", from.to_string().as_bytes(), to_text.as_bytes()]).expect("SWAPDB");
                let (a, b) = (self.dbs[&from].clone(), self.dbs[&to].clone());
                self.dbs.insert(from, b);
                self.dbs.insert(to, a);
            }
            12 => {
                self.call(&[b"SELECT", to_text.as_bytes()]).expect("SELECT");
                self.db = to;
            }
            13 => {
                let moment: &[u8] = [&b"EXPIRE"[..], b"PEXPIRE"][rng.random_range(0..2)];
                let reply = self.call(&[moment, &key, b"0"]);
                assert_eq!(reply, Ok(Value::Int(i64::from(found.is_some()))));
                self.here().remove(&key);
            }
            14 => {
                let ttl_ms = ttl(rng);
                let reply = self.call(&[b"PEXPIRE", &key, ttl_ms.to_string().as_bytes()]);
                assert_eq!(reply, Ok(Value::Int(i64::from(found.is_some()))));
                if found.is_some() {
                    let until_ms = self.check_deadline(&key, ttl_ms);
                    self.here().get_mut(&key).expect("the key").until_ms = until_ms;
                }
            }
            15 => {
                self.call(&[b"PERSIST", &key]).expect("PERSIST");
                if let Some(entry) = self.here().get_mut(&key) {
                    entry.until_ms = -1;
                }
            }
            16 => {
                let reply = self.call(&[b"COPY", &key, &other, b"REPLACE"]);
                match found {
                    Some(Entry { content: Content::Lock { .. }, .. }) => assert!(reply.is_err(), "COPY of a lock"),
                    Some(entry) if key != other => {
                        assert_eq!(reply, Ok(Value::Int(1)));
                        self.here().insert(other, entry);
                    }
                    Some(_) => assert!(reply.is_err(), "COPY to itself"),
                    None => {}
                }
            }
            17..=19 => {
                let Some(entry) = found else { return };
                let payload = bytes(&self.call(&[b"DUMP", &key]).expect("DUMP"));
                if rng.random() {
                    self.call(&[b"DEL", &key]).expect("DEL");
                    self.here().remove(&key);
                }
                match rng.random_range(0..3) {
                    0 => {
                        self.call(&[b"RESTORE", &other, b"1", &payload, b"ABSTTL", b"REPLACE"]).expect("RESTORE");
                        self.here().remove(&other);
                    }
                    1 => {
                        self.call(&[b"RESTORE", &other, b"0", &payload, b"REPLACE"]).expect("RESTORE");
                        self.here().insert(other, Entry { until_ms: -1, ..entry });
                    }
                    _ => {
                        self.call(&[b"RESTORE", &other, b"500000", &payload, b"REPLACE"]).expect("RESTORE");
                        let until_ms = self.check_deadline(&other, 500_000);
                        self.here().insert(other, Entry { until_ms, ..entry });
                    }
                }
            }
            20 => match rng.random_range(0..8) {
                0 => {
                    self.call(&[b"FLUSHALL", b"ASYNC"]).expect("FLUSHALL");
                    self.dbs.values_mut().for_each(Db::clear);
                }
                1 => {
                    self.call(&[b"FLUSHALL", b"SYNC"]).expect("FLUSHALL");
                    self.dbs.values_mut().for_each(Db::clear);
                }
                2..5 => {
                    self.call(&[b"FLUSHDB", b"ASYNC"]).expect("FLUSHDB");
                    self.here().clear();
                }
                _ => {
                    self.call(&[b"FLUSHDB"]).expect("FLUSHDB");
                    self.here().clear();
                }
            },
            _ => {
                self.call(&[b"DEBUG", b"RELOAD"]).expect("DEBUG RELOAD");
            }
        }
    }

    /// A view that a random part of the steps is followed by, so that others come first as well.
    fn look(&mut self, rng: &mut SeededRng) {
        match rng.random_range(0..6) {
            0 | 1 => self.check_list(),
            2 => self.check_gauge(),
            3 => {
                let key = pick(rng, &KEYS);
                self.check_info(&key);
            }
            _ => {}
        }
    }

    fn check_list(&mut self) {
        let locks = self.locks_here();
        let reply = self.call(&[b"PRLOCK.LIST"]).expect("LIST");
        let listed = items(&reply);
        let keys: Vec<Vec<u8>> = listed.iter().map(|lock| bytes(&map(lock)["key"])).collect();
        assert_eq!(keys, locks.keys().cloned().collect::<Vec<_>>());
        for (lock, (key, entry)) in listed.iter().zip(&locks) {
            self.check_fields(lock, key, entry);
        }
    }

    fn check_info(&mut self, key: &[u8]) {
        let found = self.get(key);
        let reply = self.call(&[b"PRLOCK.INFO", key]);
        match found {
            Some(Entry { content: Content::List, .. }) => {
                assert!(reply.expect_err("a list").starts_with("WRONGTYPE"));
            }
            Some(entry @ Entry { content: Content::Lock { .. }, .. }) => {
                self.check_fields(&reply.expect("INFO"), key, &entry);
            }
            _ => assert_eq!(reply, Ok(Value::Nil)),
        }
    }

    fn check_fields(&mut self, lock: &Value, due_key: &[u8], entry: &Entry) {
        let lock = map(lock);
        let Content::Lock { holder, fence, renewals, linger_ms, .. } = &entry.content else { panic!("no lock") };
        assert_eq!(bytes(&lock["key"]), due_key);
        assert_eq!(bytes(&lock["holder"]), *holder);
        let number = |field: &str| int(&lock[field]);
        assert_eq!((number("fence"), number("renewals"), number("linger-ms")), (*fence, *renewals, *linger_ms));
        assert_eq!(number("waiters"), 0);
        assert!(number("held-ms") >= number("idle-ms") && number("idle-ms") >= 0);
        if entry.until_ms < 0 {
            assert_eq!(number("ttl-ms"), -1);
        } else {
            let rest_ms = entry.until_ms - self.now_ms();
            assert!(number("ttl-ms") >= rest_ms && number("ttl-ms") < rest_ms + 20_000);
        }
    }

    fn locks_here(&mut self) -> BTreeMap<Vec<u8>, Entry> {
        let keys: Vec<Vec<u8>> = self.here().keys().cloned().collect();
        keys.into_iter()
            .filter_map(|key| self.get(&key).map(|entry| (key, entry)))
            .filter(|(_, entry)| matches!(entry.content, Content::Lock { .. }))
            .collect()
    }

    /// `held` counts locks past their deadlines until the server removes them; so it is asked when there are none.
    fn check_gauge(&mut self) {
        let home = self.db;
        let mut held = 0;
        for db in DBS {
            self.db = db;
            self.call(&[b"SELECT", db.to_string().as_bytes()]).expect("SELECT");
            held += self.locks_here().len() as i64;
            for key in KEYS {
                self.call(&[b"EXISTS", key.as_bytes()]).expect("EXISTS");
            }
        }
        self.db = home;
        self.call(&[b"SELECT", home.to_string().as_bytes()]).expect("SELECT");
        assert_eq!(self.conn.gauge("held"), held);
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last commands, each with its database:\n{}", self.history.join("\n"));
        }
    }
}

fn pick(rng: &mut SeededRng, from: &[&str]) -> Vec<u8> {
    from[rng.random_range(0..from.len())].as_bytes().to_vec()
}

/// Mostly long ones; sometimes one that passes at once.
fn ttl(rng: &mut SeededRng) -> i64 {
    if rng.random_range(0..10) == 0 { rng.random_range(1..5) } else { rng.random_range(300_000..900_000) }
}

fn seconds() -> u64 {
    match std::env::var("PRLOCK_MODEL_SECONDS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("PRLOCK_MODEL_SECONDS is no number: {text:?}")),
        Err(_) => 3,
    }
}

#[test]
fn random_commands_do_what_the_model_says() {
    let server = Server::start();
    let mut rng = seeded_rng();
    let mut model = Model::new(&server);
    let start = Instant::now();
    let mut steps = 0;
    // A slow machine still makes some steps, and a fast one does not stop early.
    while start.elapsed() < Duration::from_secs(seconds()) || steps < 300 {
        match rng.random_range(0..20) {
            0..7 => model.claim(&mut rng),
            7..9 => model.renew(&mut rng),
            9..11 => model.release(&mut rng),
            11 => model.revoke(&mut rng),
            _ => model.keyspace(&mut rng),
        }
        model.look(&mut rng);
        steps += 1;
        if steps % 200 == 0 {
            model.check_gauge();
            server.assert_locks_agree();
        }
    }
    model.check_gauge();
    server.assert_locks_agree();
}
