//! A lock as the server describes it.

use std::time::Instant;

use redis::Value;

/// One lock, and when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub key: Vec<u8>,
    pub holder: Vec<u8>,
    pub fence: u64,
    /// What remained of the deadline; none if it has none.
    pub ttl_ms: Option<u64>,
    pub held_ms: u64,
    /// Since the last claim or renewal.
    pub idle_ms: u64,
    pub renewals: u64,
    pub linger_ms: Option<u64>,
    pub waiters: u64,
    pub seen: Instant,
}

impl Lock {
    /// From the map of PRLOCK.LIST and PRLOCK.INFO. None if a field is missing or of another kind.
    pub fn parse(value: &Value, seen: Instant) -> Option<Self> {
        let Value::Map(pairs) = value else { return None };
        let field =
            |name: &str| pairs.iter().find_map(|(field, value)| (bytes(field)? == name.as_bytes()).then_some(value));
        let number = |name: &str| match field(name)? {
            Value::Int(number) => Some(*number),
            _ => None,
        };
        let count = |name: &str| u64::try_from(number(name)?).ok();
        Some(Self {
            key: bytes(field("key")?)?.to_vec(),
            holder: bytes(field("holder")?)?.to_vec(),
            fence: count("fence")?,
            ttl_ms: u64::try_from(number("ttl-ms")?).ok(),
            held_ms: count("held-ms")?,
            idle_ms: count("idle-ms")?,
            renewals: count("renewals")?,
            linger_ms: u64::try_from(number("linger-ms")?).ok(),
            waiters: count("waiters")?,
            seen,
        })
    }

    /// What remains of the deadline at `now`.
    pub fn rest_ms(&self, now: Instant) -> Option<u64> {
        Some(self.ttl_ms?.saturating_sub(self.since_seen_ms(now)))
    }

    /// How long it has been held at `now`.
    pub fn age_ms(&self, now: Instant) -> u64 {
        self.held_ms.saturating_add(self.since_seen_ms(now))
    }

    pub fn idle_now_ms(&self, now: Instant) -> u64 {
        self.idle_ms.saturating_add(self.since_seen_ms(now))
    }

    /// The part of the time between the last claim or renewal and the deadline that remains, from 0 to 1.
    pub fn rest_share(&self, now: Instant) -> Option<f64> {
        let whole_ms = self.ttl_ms?.saturating_add(self.idle_ms);
        Some(self.rest_ms(now)? as f64 / whole_ms.max(1) as f64)
    }

    fn since_seen_ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.seen).as_millis()).unwrap_or(u64::MAX)
    }
}

/// The bytes of a string reply.
pub fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.as_bytes()),
        _ => None,
    }
}
