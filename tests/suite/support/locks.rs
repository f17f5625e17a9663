//! Locks as the tests speak of them.

use redis::Value;

use super::wait::{PATIENCE, wait_until};
use super::{Conn, Event, ReplicationStream, Server, Subscriber, bytes, int, items, map, text};

/// A reply of PRLOCK.CLAIM that grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub token: Vec<u8>,
    pub fence: i64,
}

/// The words of a command: `cmd("PRLOCK.CLAIM k PX 1000")`. `''` stands for an empty argument and `_` for a space.
pub fn cmd(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace()
        .map(|word| if word == "''" { Vec::new() } else { word.replace('_', " ").into_bytes() })
        .collect()
}

/// Lines like those of [`cmd`], to be sent at once.
pub fn pipeline<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for line in lines {
        pipeline.add_command(redis::Cmd::new()).arg(cmd(line.as_ref()));
    }
    pipeline
}

/// The grant in a reply of PRLOCK.CLAIM; `None` for a refusal.
#[track_caller]
pub fn grant(reply: &Value) -> Option<Grant> {
    if *reply == Value::Nil {
        return None;
    }
    match items(reply).as_slice() {
        [token, fence] => Some(Grant { token: bytes(token), fence: int(fence) }),
        _ => panic!("no grant: {reply:?}"),
    }
}

impl Conn {
    /// Runs a PRLOCK.CLAIM that must be granted.
    #[track_caller]
    pub fn granted(&mut self, line: &str) -> Grant {
        grant(&self.ok(cmd(line))).unwrap_or_else(|| panic!("refused: {line}"))
    }

    /// Runs a PRLOCK.CLAIM that must be refused.
    #[track_caller]
    pub fn refused(&mut self, line: &str) {
        assert_eq!(self.ok(cmd(line)), Value::Nil, "{line}");
    }

    /// Runs a command with an integer for a reply.
    #[track_caller]
    pub fn int(&mut self, line: &str) -> i64 {
        int(&self.ok(cmd(line)))
    }

    /// A field of PRLOCK.INFO that is an integer.
    #[track_caller]
    pub fn lock_number(&mut self, key: &str, field: &str) -> i64 {
        int(&map(&self.ok(("PRLOCK.INFO", key)))[field])
    }

    /// The holder's label in PRLOCK.INFO.
    #[track_caller]
    pub fn lock_holder(&mut self, key: &str) -> String {
        text(&map(&self.ok(("PRLOCK.INFO", key)))["holder"])
    }

    /// The keys that PRLOCK.LIST shows.
    #[track_caller]
    pub fn listed(&mut self) -> Vec<String> {
        items(&self.ok(("PRLOCK.LIST",))).iter().map(|lock| text(&map(lock)["key"])).collect()
    }

    /// All that a key is: its value as DUMP gives it, and its deadline.
    #[track_caller]
    pub fn state_of(&mut self, key: &[u8]) -> (Value, i64) {
        (self.ok(("DUMP", key)), int(&self.ok(("PEXPIRETIME", key))))
    }

    /// The server's clock, Unix time in ms.
    #[track_caller]
    pub fn time_ms(&mut self) -> i64 {
        let parts: Vec<i64> =
            items(&self.ok(("TIME",))).iter().map(|part| text(part).parse().expect("a number")).collect();
        parts[0] * 1_000 + parts[1] / 1_000
    }

    /// Waits until the server's clock has passed a deadline. It touches no key.
    #[track_caller]
    pub fn wait_past(&mut self, at_ms: i64) {
        wait_until("the clock to pass a deadline", PATIENCE, || (self.time_ms() > at_ms + 1).then_some(()));
    }
}

/// Watches a server from all sides at once: data set, replication stream and keyspace events.
#[derive(Debug)]
pub struct Witness<'s> {
    server: &'s Server,
    dirty: i64,
    stream: ReplicationStream,
    events: Subscriber,
}

impl Server {
    /// A witness; it switches all keyspace events on.
    #[track_caller]
    pub fn witness(&self) -> Witness<'_> {
        self.conn().ok(("CONFIG", "SET", "notify-keyspace-events", "KEAn"));
        let stream = self.replication_stream();
        let events = self.subscribe("__keyevent@*__:*");
        Witness { server: self, dirty: self.dirty(), stream, events }
    }

    /// Changes since the last save.
    #[track_caller]
    pub fn dirty(&self) -> i64 {
        self.info_number("rdb_changes_since_last_save")
    }
}

impl Witness<'_> {
    /// Nothing has happened since the last look.
    #[track_caller]
    pub fn assert_nothing(&mut self, what: &str) {
        assert_eq!(self.server.dirty(), self.dirty, "{what}: the data set is dirty");
        assert_eq!(self.stream.drain_without(super::NOISE), Vec::<Vec<Vec<u8>>>::new(), "{what}: replicated");
        assert_eq!(self.events.drain(), [], "{what}: an event");
    }

    /// The names of the commands replicated since the last look, and of the events emitted: `["PRLOCK.APPLY k"]`,
    /// `["prlock.claim k"]`.
    #[track_caller]
    pub fn seen(&mut self) -> (Vec<String>, Vec<String>) {
        self.dirty = self.server.dirty();
        let commands = self.stream.drain_without(super::NOISE);
        let commands = commands
            .iter()
            .map(|command| command.iter().take(2).map(|word| lossy(word)).collect::<Vec<_>>().join(" "))
            .collect();
        let events = self.events.drain();
        (commands, events.iter().map(event_line).collect())
    }
}

/// An event of a `__keyevent@` channel as `name key`.
pub fn event_line(event: &Event) -> String {
    let channel = lossy(&event.channel);
    let name = channel.split_once("__:").expect("a keyevent channel").1;
    format!("{name} {}", lossy(&event.message))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
