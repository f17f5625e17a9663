//! A command whose reply is awaited later.

use std::time::Duration;

use redis::{ToRedisArgs, Value};

use super::wait::{PATIENCE, wait_until};
use super::{Raw, Server, text};

/// A command that was sent on a connection of its own, and its reply to come.
#[derive(Debug)]
pub struct Waiter {
    raw: Raw,
    port: u16,
    /// Its id in CLIENT LIST.
    pub id: i64,
}

impl Server {
    /// Sends a command on a new connection and does not wait for anything.
    #[track_caller]
    pub fn background(&self, args: impl ToRedisArgs) -> Waiter {
        self.background_on(self.raw(), args)
    }

    /// The same on a connection that was prepared, by SELECT or HELLO say.
    #[track_caller]
    pub fn background_on(&self, mut raw: Raw, args: impl ToRedisArgs) -> Waiter {
        let id = raw.id();
        raw.send_command(args);
        Waiter { raw, port: self.port(), id }
    }

    /// Sends a command on a new connection, and returns when the server has it blocked.
    #[track_caller]
    pub fn waiter(&self, args: impl ToRedisArgs) -> Waiter {
        self.waiter_on(self.raw(), args)
    }

    /// The same on a connection that was prepared.
    #[track_caller]
    pub fn waiter_on(&self, raw: Raw, args: impl ToRedisArgs) -> Waiter {
        let mut waiter = self.background_on(raw, args);
        waiter.wait_blocked();
        waiter
    }
}

impl Waiter {
    /// The reply, or the error's text; panics when there is none in time.
    #[track_caller]
    pub fn reply(&mut self, timeout: Duration) -> Result<Value, String> {
        self.raw.reply(timeout)
    }

    /// The reply if there is one within `timeout`.
    pub fn reply_within(&mut self, timeout: Duration) -> Option<Result<Value, String>> {
        self.raw.reply_within(timeout)
    }

    /// The reply if it is there already.
    pub fn reply_now(&mut self) -> Option<Result<Value, String>> {
        self.reply_within(Duration::ZERO)
    }

    /// Whether the server holds this client blocked.
    #[track_caller]
    pub fn is_blocked(&self) -> bool {
        let mut conn = Raw::connect(self.port);
        let list = conn.call(("CLIENT", "LIST", "ID", self.id)).expect("CLIENT LIST");
        text(&list).split_whitespace().filter_map(|field| field.strip_prefix("flags=")).any(|flags| flags.contains('b'))
    }

    /// Waits until the server holds this client blocked; panics when it answers instead.
    #[track_caller]
    pub fn wait_blocked(&mut self) {
        wait_until("the client to be blocked", PATIENCE, || {
            if let Some(reply) = self.reply_now() {
                panic!("it was to block, but it got {reply:?}");
            }
            self.is_blocked().then_some(())
        });
    }

    /// After the reply was taken: there was just the one.
    #[track_caller]
    pub fn assert_no_more_replies(&mut self) {
        self.raw.assert_silent();
    }

    /// Closes the connection, as a process that ends does.
    pub fn disconnect(self) {
        self.raw.close();
    }

    /// The connection, to go on with by hand.
    pub fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }
}
