//! The client that most tests talk through.

use std::ops::{Deref, DerefMut};

use redis::{
    ConnectionAddr, ConnectionLike, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, ToRedisArgs, Value,
};

use super::memcheck::stretched;
use super::raw::pack;
use super::resp::error_text;
use super::wait::PATIENCE;

/// A connection of the `redis` crate, with errors as the text that the server sent.
pub struct Conn {
    inner: redis::Connection,
}

impl Conn {
    pub fn open(port: u16, settings: RedisConnectionInfo) -> redis::RedisResult<Self> {
        let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
        // Without the library's name: Redis 7.0 would count an unknown command.
        let info = address.into_connection_info()?.set_redis_settings(settings.set_skip_set_lib_name());
        let patience = stretched(PATIENCE);
        let inner = redis::Client::open(info)?.get_connection_with_timeout(patience)?;
        inner.set_read_timeout(Some(patience))?;
        inner.set_write_timeout(Some(patience))?;
        Ok(Self { inner })
    }

    pub fn resp2() -> RedisConnectionInfo {
        RedisConnectionInfo::default()
    }

    pub fn resp3() -> RedisConnectionInfo {
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3)
    }

    /// Runs a command, given as a tuple: `conn.call(("SET", "key", 5))`. An error is its text on the wire; errors inside
    /// of an EXEC's array stay there.
    pub fn call(&mut self, args: impl ToRedisArgs) -> Result<Value, String> {
        match self.inner.req_packed_command(&pack(args)) {
            Ok(Value::ServerError(error)) => Err(error_text(&error)),
            Ok(value) => Ok(value),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Runs a command that must not fail.
    #[track_caller]
    pub fn ok(&mut self, args: impl ToRedisArgs) -> Value {
        self.call(args).unwrap_or_else(|error| panic!("unexpected error: {error}"))
    }

    /// Runs a command that must fail, and returns the error's text.
    #[track_caller]
    pub fn err(&mut self, args: impl ToRedisArgs) -> String {
        match self.call(args) {
            Err(error) => error,
            Ok(value) => panic!("an error was due, not {value:?}"),
        }
    }

    /// The connection's id in CLIENT LIST.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        super::int(&self.ok(("CLIENT", "ID")))
    }
}

impl Deref for Conn {
    type Target = redis::Connection;

    fn deref(&self) -> &redis::Connection {
        &self.inner
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut redis::Connection {
        &mut self.inner
    }
}
