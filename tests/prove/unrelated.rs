//! A second application on the same server, which knows nothing of locks, while these churn: what it stores is right, its
//! WATCH and its client-side cache see no noise from calls that were refused, and MOVE and COPY leave it on its database.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand::rngs::StdRng;
use redis::Value;

use crate::history::{self, rules};
use crate::load::{self, Load, Settings};
use crate::run::Run;
use crate::support::{Conn, Raw, Server, bytes, int, items, text};

pub fn unrelated(run: &Run) -> String {
    let server =
        Server::builder().config("notify-keyspace-events", "AKEd").config("maxmemory-policy", "noeviction").start();
    let settings = Settings { ttl_ms: (5, 300), keys: 6, ..Settings::default() };
    let load = Load::start(run, 0, &settings, &load::one_server(&server));

    // A lock that is held all the time, and on which everybody is refused.
    let mut holder = server.conn();
    holder.ok(("PRLOCK.CLAIM", "kept", "PX", 86_400_000, "TOKEN", "t"));
    let mut cache = Cache::start(&server);
    let mut app =
        App { conn: server.conn(), rng: run.rng(1), counter: 0, list: Vec::new(), hash: BTreeMap::new(), steps: 0 };
    let mut watches = 0;
    while run.goes_on() {
        for _ in 0..20 {
            app.step();
        }
        watch_is_not_disturbed(&server, &mut holder);
        watches += 1;
        cache.assert_silent();
        run.progress(|| format!("{} steps of the other application", app.steps));
    }
    let calls = load.finish();
    history::check(&calls, &BTreeMap::new());
    let grants = rules::fences_rise(&calls);
    format!(
        "{} steps of the other application were right beside {grants} grants in {} calls; {watches} watched transactions went through refusals; its cache was told nothing",
        app.steps,
        calls.len()
    )
}

/// Claims, renewals and releases that are refused don't touch the watched lock.
#[track_caller]
fn watch_is_not_disturbed(server: &Server, other: &mut Conn) {
    let mut conn = server.conn();
    conn.ok(("WATCH", "kept", "app:counter"));
    assert_eq!(other.ok(("PRLOCK.CLAIM", "kept", "PX", 1_000, "TOKEN", "other")), Value::Nil);
    assert_eq!(other.ok(("PRLOCK.CLAIM", "kept", "PX", 1_000, "TOKEN", "other", "BLOCK", 1)), Value::Nil);
    assert_eq!(other.ok(("PRLOCK.RENEW", "kept", "other", "PX", 1_000)), Value::Int(0));
    assert_eq!(other.ok(("PRLOCK.RELEASE", "kept", "other")), Value::Int(0));
    conn.ok(("MULTI",));
    conn.ok(("SET", "app:watched", "1"));
    assert_ne!(conn.ok(("EXEC",)), Value::Nil, "a refusal disturbed WATCH");
}

/// A client that caches what it reads.
struct Cache(Raw);

impl Cache {
    fn start(server: &Server) -> Self {
        let mut raw = server.raw();
        raw.call(("HELLO", 3)).expect("HELLO");
        raw.call(("CLIENT", "TRACKING", "ON")).expect("CLIENT TRACKING");
        raw.call(("SET", "app:cached", "1")).expect("SET");
        raw.call(("GET", "app:cached")).expect("GET");
        raw.call(("PRLOCK.INFO", "kept")).expect("PRLOCK.INFO");
        // Its own SET told it of nothing, since it had not read the key before.
        Self(raw)
    }

    /// Neither the other application nor a refusal has told it to forget what it read.
    #[track_caller]
    fn assert_silent(&mut self) {
        self.0.assert_silent();
    }
}

/// What the other application stores, and what it must find.
struct App {
    conn: Conn,
    rng: StdRng,
    counter: i64,
    list: Vec<Vec<u8>>,
    hash: BTreeMap<String, i64>,
    steps: u64,
}

impl App {
    #[track_caller]
    fn step(&mut self) {
        self.steps += 1;
        let number = self.rng.random_range(0..1_000);
        match self.rng.random_range(0..11) {
            0 => {
                self.counter += 1;
                assert_eq!(self.conn.ok(("INCR", "app:counter")), Value::Int(self.counter));
            }
            1 => {
                let item = number.to_string().into_bytes();
                self.list.push(item.clone());
                self.conn.ok(("RPUSH", "app:list", item));
            }
            2 if !self.list.is_empty() => {
                let found = bytes(&self.conn.ok(("LPOP", "app:list")));
                assert_eq!(found, self.list.remove(0));
            }
            3 => {
                let field = format!("f{}", number % 7);
                let value = self.hash.entry(field.clone()).or_default();
                *value += 1;
                assert_eq!(self.conn.ok(("HINCRBY", "app:hash", field, 1)), Value::Int(*value));
            }
            4 => {
                let all = items(&self.conn.ok(("LRANGE", "app:list", 0, -1)));
                assert_eq!(all.iter().map(bytes).collect::<Vec<_>>(), self.list);
            }
            5 => {
                self.conn.ok(("SADD", "app:set", number));
                assert_eq!(self.conn.ok(("SISMEMBER", "app:set", number)), Value::Int(1));
            }
            6 => {
                self.conn.ok(("ZADD", "app:zset", number, number));
                let score = text(&self.conn.ok(("ZSCORE", "app:zset", number)));
                assert_eq!(score, number.to_string());
            }
            7 => {
                let id = self.conn.ok(("XADD", "app:stream", "MAXLEN", 100, "*", "n", number));
                let last = items(&self.conn.ok(("XREVRANGE", "app:stream", "+", "-", "COUNT", 1)));
                assert_eq!(bytes(&items(&last[0])[0]), bytes(&id));
            }
            8 => {
                self.conn.ok(("SET", "app:moves", number));
                self.conn.ok(("DEL", "app:copy"));
                let _ = self.conn.call(("COPY", "app:moves", "app:copy", "DB", 1, "REPLACE"));
                let _ = self.conn.call(("MOVE", "app:moves", 2));
                self.is_at_home();
                assert_eq!(self.conn.ok(("GET", "app:copy")), Value::Nil, "COPY left it on another database");
                self.conn.ok(("DEL", "app:moves"));
            }
            9 => {
                self.conn.ok(("SET", "app:short", number, "PX", 60_000));
                let rest_ms = int(&self.conn.ok(("PTTL", "app:short")));
                assert!((1..=60_000).contains(&rest_ms));
                self.conn.ok(("PFADD", "app:hll", number));
                self.conn.ok(("SETBIT", "app:bits", number, 1));
                assert_eq!(self.conn.ok(("GETBIT", "app:bits", number)), Value::Int(1));
            }
            _ => {
                let script = "redis.call('INCR', KEYS[1]) return redis.call('GET', KEYS[1])";
                self.counter += 1;
                let found = text(&self.conn.ok(("EVAL", script, 1, "app:counter")));
                assert_eq!(found, self.counter.to_string());
            }
        }
    }

    /// It is still on database 0.
    #[track_caller]
    fn is_at_home(&mut self) {
        let info = text(&self.conn.ok(("CLIENT", "INFO")));
        assert!(info.split(' ').any(|field| field == "db=0"), "MOVE or COPY left it on another database: {info}");
    }
}
