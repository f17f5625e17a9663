//! Every error that a command can give. The texts hold nothing of what the client sent.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

/// What a command answers instead of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// An option that is unknown, repeated, without its value, missing, or excludes another.
    Syntax,
    /// A number that is not a plain base-10 integer of 64 bits.
    NotAnInteger,
    /// A TTL of 0, negative, or beyond what the server can store. Holds the command's name.
    InvalidExpire(&'static str),
    /// A TTL above the setting. Holds the command's name and the cap in ms.
    AboveCap(&'static str, i64),
    NegativeTimeout,
    NegativeLinger,
    TokenLength,
    HolderLength,
    /// REVOKE without a label.
    EmptyHolder,
    WrongType,
    /// 2^53 fences are used up.
    NoFence,
    /// The internal command, from a client.
    Internal,
    /// The internal command, with bytes that are no lock.
    Broken,
    /// The server did not store the value.
    Refused,
    /// The server cannot block this connection.
    CannotWait,
}

impl CommandError {
    /// The text, with its code.
    pub fn text(&self) -> Cow<'static, CStr> {
        let text: &'static CStr = match self {
            Self::Syntax => c"ERR syntax error",
            Self::NotAnInteger => c"ERR value is not an integer or out of range",
            Self::InvalidExpire(command) => return owned(format!("ERR invalid expire time in '{command}' command")),
            Self::AboveCap(command, cap_ms) => {
                return owned(format!(
                    "ERR invalid expire time in '{command}' command: above {cap_ms} ms, the cap that prlock.max-ttl-ms sets"
                ));
            }
            Self::NegativeTimeout => c"ERR timeout is negative",
            Self::NegativeLinger => c"ERR value is out of range, must be positive",
            Self::TokenLength => c"ERR token must be 1 to 512 bytes",
            Self::HolderLength => c"ERR holder must be at most 512 bytes",
            Self::EmptyHolder => c"ERR holder must not be empty",
            Self::WrongType => c"WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NoFence => c"ERR no fence below 2^53 is left; is the clock or a restored lock far in the future?",
            Self::Internal => c"ERR PRLOCK.APPLY is for replication and the AOF; use PRLOCK.CLAIM",
            Self::Broken => c"ERR broken lock in the replication stream or AOF",
            Self::Refused => c"ERR the server did not store the lock",
            Self::CannotWait => c"ERR BLOCK is not possible on a connection with subscriptions; use another connection",
        };
        Cow::Borrowed(text)
    }
}

fn owned(text: String) -> Cow<'static, CStr> {
    CString::new(text).map_or(Cow::Borrowed(c"ERR invalid expire time"), Cow::Owned)
}
