//! Listening to channels, for keyspace events above all.

use std::time::Duration;

use redis::Value;

use super::wait::PATIENCE;
use super::{Raw, Server, bytes, items};

/// A message: where it was published, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub channel: Vec<u8>,
    pub message: Vec<u8>,
}

/// A connection that listens to all channels of a pattern.
#[derive(Debug)]
pub struct Subscriber {
    raw: Raw,
}

impl Server {
    /// Listens to the channels of a pattern: `server.subscribe("__key*__:*")`. For keyspace events the server needs the
    /// setting `notify-keyspace-events` too.
    #[track_caller]
    pub fn subscribe(&self, pattern: &str) -> Subscriber {
        let mut raw = self.raw();
        raw.call(("PSUBSCRIBE", pattern)).expect("PSUBSCRIBE");
        Subscriber { raw }
    }
}

impl Subscriber {
    /// The next message; panics when none comes in time.
    #[track_caller]
    pub fn next(&mut self, timeout: Duration) -> Event {
        let reply = self.raw.reply(timeout).expect("a message");
        event(&reply).unwrap_or_else(|| panic!("not a message: {reply:?}"))
    }

    /// All messages published up to now and not yet taken.
    #[track_caller]
    pub fn drain(&mut self) -> Vec<Event> {
        // The server answers in order: what was published before this PING comes before its reply.
        self.raw.send(b"PING\r\n");
        let mut events = Vec::new();
        while let Some(event) = event(&self.raw.reply(PATIENCE).expect("a message")) {
            events.push(event);
        }
        events
    }
}

/// The message in `reply`, or none if it is the PING's reply.
fn event(reply: &Value) -> Option<Event> {
    let parts = items(reply);
    match parts.as_slice() {
        [kind, _pattern, channel, message] if bytes(kind) == b"pmessage" => {
            Some(Event { channel: bytes(channel), message: bytes(message) })
        }
        _ => None,
    }
}
