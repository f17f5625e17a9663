//! What went wrong, in words that say what to do.

use redis::{ErrorKind, RedisError, ServerError};

/// An error of the server or of the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub text: String,
    /// The connection is of no use any more.
    pub is_fatal_to_connection: bool,
}

impl Problem {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_fatal_to_connection: false }
    }

    /// From an error of the client library; `address` and `user` as given on the command line.
    pub fn of(error: &RedisError, address: &str, user: &str) -> Self {
        let is_fatal_to_connection = error.is_io_error() || error.is_unrecoverable_error();
        let text = match error.kind() {
            _ if error.is_connection_refusal() => format!("nothing listens on {address}"),
            _ if error.is_timeout() => "the server does not answer".to_owned(),
            _ if error.is_connection_dropped() => "the connection was closed".to_owned(),
            ErrorKind::AuthenticationFailed => wrong_password(user),
            ErrorKind::RESP3NotSupported => "the server is too old: it does not know RESP3".to_owned(),
            ErrorKind::Io => format!("{address}: {}", error.detail().map_or_else(|| error.to_string(), str::to_owned)),
            _ => explain(&wire_text(error), user),
        };
        Self { text, is_fatal_to_connection }
    }

    /// From an error inside of a reply.
    pub fn of_server(error: &ServerError, user: &str) -> Self {
        Self::new(explain(&server_text(error), user))
    }
}

/// As the server wrote it. What it said of a whole transaction, it said of the first command in it that it refused.
fn wire_text(error: &RedisError) -> String {
    match error.clone().into_server_errors().as_deref() {
        Some([(_, first), ..]) => server_text(first),
        _ => error.detail().map_or_else(|| error.to_string(), str::to_owned),
    }
}

fn server_text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// What a server's error means here, and what to do about it.
fn explain(wire: &str, user: &str) -> String {
    let has = |part: &str| wire.to_ascii_lowercase().contains(part);
    if has("unknown command") && has("prlock.") {
        // MODULE LOAD is not for everyone: servers refuse it unless they were started with enable-module-command.
        return "this server has no PRLOCK module: load it with 'loadmodule /path/to/libprlock.so' in its \
                configuration and a restart"
            .to_owned();
    }
    if has("wrongpass") || has("invalid username-password") {
        return wrong_password(user);
    }
    if has("noauth") || has("authentication required") {
        return "the server wants a password: set REDISCLI_AUTH, or write it into the address".to_owned();
    }
    if has("noperm") {
        return format!(
            "user '{user}' may not do this ({wire}); looking needs: ACL SETUSER {user} +prlock.list \
                        +prlock.info +info, and the right to read the keys; freeing needs +prlock.claim \
                        +prlock.release +watch +unwatch +multi +exec, and the right to write them"
        );
    }
    if has("syntax error") || has("wrong number of arguments") {
        return format!("the server's PRLOCK module is older than this program: upgrade the module ({wire})");
    }
    if has("noproto") {
        return "the server is too old: it does not know RESP3".to_owned();
    }
    if wire.starts_with("LOADING") {
        return "the server is loading its data".to_owned();
    }
    if wire.starts_with("READONLY") {
        return "this is a replica: a lock can be freed on its primary only".to_owned();
    }
    if wire.starts_with("OOM") {
        return "the server is at maxmemory, and a lock is freed by a claim, which it refuses then: DEL frees it"
            .to_owned();
    }
    if let Some(place) = wire.strip_prefix("MOVED ").and_then(|rest| rest.split(' ').nth(1)) {
        return format!("this key belongs to another node of the cluster now: {place}");
    }
    wire.to_owned()
}

fn wrong_password(user: &str) -> String {
    format!("wrong user or password (user '{user}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_say_what_to_do() {
        let says = |wire: &str, part: &str| {
            let text = explain(wire, "ops");
            assert!(text.contains(part), "{wire:?} became {text:?}");
        };
        says("ERR unknown command 'PRLOCK.LIST', with args beginning with: ", "loadmodule");
        says("WRONGPASS invalid username-password pair or user is disabled.", "wrong user or password (user 'ops')");
        says("NOAUTH HELLO must be called with the client already authenticated", "REDISCLI_AUTH");
        says("NOPERM this user has no permissions to run the 'prlock.list' command", "ACL SETUSER ops +prlock.list");
        says("READONLY You can't write against a read only replica.", "primary");
        says("ERR syntax error", "upgrade the module");
        says("OOM command not allowed when used memory > 'maxmemory'.", "DEL");
        says("MOVED 3999 10.0.0.7:6381", "another node of the cluster now: 10.0.0.7:6381");
        says("LOADING Redis is loading the dataset in memory", "loading its data");
        says("ERR something new", "ERR something new");
    }
}
