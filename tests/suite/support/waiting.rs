//! What the tests of waiting have in common.

use redis::Value;

use super::locks::{Grant, cmd, grant};
use super::wait::{PATIENCE, wait_until};
use super::{Server, Waiter, int, map};

/// What a server holds when nobody waits, to compare with after a storm.
#[derive(Debug)]
pub struct Footprint {
    dbsize: i64,
    used_memory: i64,
}

impl Waiter {
    /// The grant that must come.
    #[track_caller]
    pub fn granted(&mut self) -> Grant {
        let reply = self.reply(PATIENCE).unwrap_or_else(|error| panic!("no grant but: {error}"));
        grant(&reply).expect("a grant, not null")
    }

    /// The null that must come.
    #[track_caller]
    pub fn nulled(&mut self) {
        assert_eq!(self.reply(PATIENCE), Ok(Value::Nil));
    }

    /// The error that must come.
    #[track_caller]
    pub fn failed(&mut self) -> String {
        self.reply(PATIENCE).expect_err("an error")
    }

    /// No reply has come, and the server still holds the client.
    #[track_caller]
    pub fn assert_waiting(&mut self) {
        assert!(self.is_blocked(), "it waits no more");
        assert_eq!(self.reply_now(), None);
    }
}

impl Server {
    /// A client that waits: `server.waits("PRLOCK.CLAIM k PX 1000 BLOCK 0")`.
    #[track_caller]
    pub fn waits(&self, line: &str) -> Waiter {
        self.waiter(cmd(line))
    }

    /// A client of another database that waits.
    #[track_caller]
    pub fn waits_in(&self, db: i32, line: &str) -> Waiter {
        let mut raw = self.raw();
        assert_eq!(raw.call(("SELECT", db)), Ok(Value::Okay));
        self.waiter_on(raw, cmd(line))
    }

    /// A counter or gauge of `INFO prlock`.
    #[track_caller]
    pub fn stat(&self, name: &str) -> i64 {
        self.info_number(&format!("prlock_{name}"))
    }

    /// How many PRLOCK.INFO says to wait for a key.
    #[track_caller]
    pub fn waiters_of(&self, key: &str) -> i64 {
        int(&map(&self.conn().ok(("PRLOCK.INFO", key)))["waiters"])
    }

    /// Waits until nobody waits any more, by the server's word and by the module's.
    #[track_caller]
    pub fn wait_nobody_waits(&self) {
        wait_until("all waits to end", PATIENCE, || {
            (self.blocked_clients() == 0 && self.stat("waiters") == 0).then_some(())
        });
    }

    #[track_caller]
    pub fn footprint(&self) -> Footprint {
        Footprint { dbsize: int(&self.conn().ok(("DBSIZE",))), used_memory: self.info_number("used_memory") }
    }

    /// Waits until the server holds no more than before: keys, waiters, blocked clients, memory to within `slack_bytes`.
    #[track_caller]
    pub fn wait_back_to(&self, before: &Footprint, slack_bytes: i64) {
        self.wait_nobody_waits();
        assert_eq!(int(&self.conn().ok(("DBSIZE",))), before.dbsize);
        let mut used_memory = 0;
        for _ in 0..1_000 {
            used_memory = self.info_number("used_memory");
            if used_memory <= before.used_memory + slack_bytes {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("used_memory was {} and is {used_memory}", before.used_memory);
    }
}
