//! What is wrong, and what to do about it, in words for whoever runs the worker.

use std::fmt;

use redis::{ErrorKind, RedisError};

/// What a program can tell errors apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// The server has no PRLOCK module, or lost it.
    NoModule,
    /// The server's module is older than this client.
    OldModule,
    /// This is a replica's address.
    Replica,
    Password,
    /// A missing ACL right.
    Rights,
    /// Part of a Cluster, and not the key's node.
    Cluster,
    /// The key holds something else than a lock.
    Type,
    Argument,
    /// At maxmemory.
    Memory,
    /// What else the server said.
    Server,
    /// No answer.
    Connection,
    /// Another token holds the lock, and the time to wait, if any, is up.
    Busy,
    /// The lock was lost while the work ran.
    Lost,
}

/// Every error of this crate.
#[derive(Clone, Debug)]
pub struct LockError {
    pub code: Code,
    /// It may go away by itself soon, so a retry makes sense; else somebody has to change something.
    pub passing: bool,
    text: String,
}

impl std::error::Error for LockError {}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl LockError {
    pub(crate) fn new(code: Code, passing: bool, text: impl Into<String>) -> Self {
        Self { code, passing, text: text.into() }
    }

    pub(crate) fn no_answer(command: &str, because: &str) -> Self {
        let text = format!(
            "{command}: {because}. No answer from the server: is it running, and are host, port and TLS right? Whether the \
             command was carried out is not known."
        );
        Self::new(Code::Connection, true, text)
    }

    /// The client library's error, explained.
    pub(crate) fn explain(command: &str, error: &RedisError) -> Self {
        if error.kind() == ErrorKind::AuthenticationFailed {
            return advise(command, "WRONGPASS", &error.to_string());
        }
        match error.code() {
            Some(code) => advise(command, code, error.detail().unwrap_or_default()),
            // Also a reply that can't be read: nothing after it on this connection can be trusted.
            None => Self::no_answer(command, error.to_string().trim_end_matches('.')),
        }
    }
}

fn advise(command: &str, prefix: &str, detail: &str) -> LockError {
    // Some servers repeat the arguments in the text, and the token is a secret.
    let detail = match detail.find("with args beginning with:") {
        Some(at) => detail[..at].trim_end_matches([',', ' ']),
        None => detail.trim_end_matches('.'),
    };
    let starts = |beginnings: &[&str]| beginnings.iter().any(|beginning| detail.starts_with(beginning));
    let (code, passing, advice) = match prefix {
        "ERR" if starts(&["unknown command"]) => (
            Code::NoModule,
            false,
            "This server has no PRLOCK module, or came back without it after a restart or failover. Add 'loadmodule \
             .../libprlock.so' to the redis.conf of every node, replicas too, and restart it; 'MODULE LIST' must name \
             prlock.",
        ),
        "ERR" if starts(&["syntax error", "wrong number of arguments"]) => (
            Code::OldModule,
            false,
            "The server's PRLOCK module is older than this client and doesn't know one of the options. Upgrade the module \
             ('MODULE LIST' shows its version), or leave the option out.",
        ),
        "ERR" if starts(&["invalid expire", "value is", "timeout is", "token must", "holder must"]) => {
            (Code::Argument, false, "An argument is out of range.")
        }
        "READONLY" => (
            Code::Replica,
            false,
            "This address is a replica's. Locks are claimed on the primary: connect to it ('INFO replication' names it).",
        ),
        "NOAUTH" | "WRONGPASS" => {
            (Code::Password, false, "The server wants another user or password. Set them in the client's URL.")
        }
        "NOPERM" => (
            Code::Rights,
            false,
            "The ACL user lacks a right. For keys that begin with 'locks:' the server's administrator gives it with: ACL \
             SETUSER <user> ~locks:* +prlock.claim +prlock.renew +prlock.release +prlock.revoke",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            (Code::Cluster, false, "This server is part of a Cluster, and this is not the key's node.")
        }
        "WRONGTYPE" => (Code::Type, false, "The key holds something else than a lock. Choose another key."),
        "OOM" => (
            Code::Memory,
            false,
            "The server is at maxmemory and grants no new locks: free memory, or raise maxmemory.",
        ),
        "UNBLOCKED" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" | "NOREPLICAS" | "MISCONF" => (
            Code::Server,
            true,
            "The server can't do it now: it starts, fails over, lacks its replicas or can't write to its disk. Its log says \
             more.",
        ),
        _ => (Code::Server, false, ""),
    };
    LockError::new(code, passing, format!("{command}: {prefix} {detail}. {advice}").trim_end())
}
