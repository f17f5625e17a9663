//! A server, a proxy in front of it, and a client behind the proxy, for one test.

mod proxy;
mod server;

use std::cell::Cell;
use std::time::{Duration, Instant};

use prlock_client::{Code, Lock, LockError, Options, with_lock};
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use tokio::time::sleep;

pub use proxy::{Fate, Proxy};
pub use server::{Server, free_port};

/// The test in RESP2 and RESP3, each for half a minute at most.
macro_rules! both {
    ($($name:ident($world:ident) $body:block)*) => {
        mod resp2 { $(one!($name, $world, $body, RESP2);)* }
        mod resp3 { $(one!($name, $world, $body, RESP3);)* }
    };
}

macro_rules! one {
    ($name:ident, $world:ident, $body:block, $protocol:ident) => {
        #[tokio::test]
        async fn $name() {
            #[allow(unused_imports)]
            use super::*;
            let test = async {
                #[allow(unused_mut)]
                let mut $world = World::start(redis::ProtocolVersion::$protocol).await;
                $body
            };
            tokio::time::timeout(std::time::Duration::from_secs(30), test).await.expect("within half a minute");
        }
    };
}

pub struct World {
    pub server: Server,
    pub proxy: Proxy,
    pub client: Client,
    pub protocol: ProtocolVersion,
}

impl World {
    pub async fn start(protocol: ProtocolVersion) -> Self {
        Self::on(Server::start(&[]).await, protocol).await
    }

    pub async fn on(server: Server, protocol: ProtocolVersion) -> Self {
        let proxy = Proxy::start(server.port).await;
        let client = client(proxy.port, protocol, |login| login);
        Self { server, proxy, client, protocol }
    }

    /// The same server under another login.
    pub fn log_in(&mut self, login: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo) {
        self.client = client(self.proxy.port, self.protocol, login);
    }

    /// Another token's claim, past any client library.
    pub async fn rival(&self, options: &[&str]) -> bool {
        let claim = [&["PRLOCK.CLAIM", "k", "PX", "60000", "TOKEN", "rival"], options].concat();
        self.server.raw(&claim).await.starts_with('*')
    }

    pub async fn release_rival(&self) -> bool {
        self.server.raw(&["PRLOCK.RELEASE", "k", "rival"]).await == ":1\r\n"
    }

    pub async fn keys(&self) -> i64 {
        self.server.number(&["DBSIZE"]).await
    }

    pub async fn waiters(&self) -> i64 {
        self.server.info("prlock", "prlock_waiters").await.parse().expect("a number")
    }

    pub async fn renewals(&self) -> i64 {
        let reply = self.server.raw(&["PRLOCK.INFO", "k"]).await;
        let after = reply.split_once("renewals\r\n:").map_or("0", |(_, after)| after);
        after.split('\r').next().and_then(|number| number.parse().ok()).expect("a number")
    }

    pub async fn free(&self) {
        until("nothing is left", async || self.keys().await == 0).await;
    }

    /// A claim that is dropped once it has come so far; nothing of it is left.
    pub async fn dropped(&self, options: &Options, so_far: impl AsyncFn() -> bool) {
        let (client, options) = (self.client.clone(), options.clone());
        let task =
            tokio::spawn(async move { with_lock(&client, "k", &options, |_| async { panic!("the work ran") }).await });
        until("it has come so far", so_far).await;
        task.abort();
        assert!(task.await.expect_err("dropped").is_cancelled());
        self.nothing_is_left().await;
    }

    /// No lock, no waiter, no connection, and nobody who renews.
    pub async fn nothing_is_left(&self) {
        until("nothing is left", async || self.keys().await == 0 && self.waiters().await == 0).await;
        // Beside the one that asks.
        until("no connection", async || self.server.info("clients", "connected_clients").await == "1").await;
    }

    /// Work that does nothing.
    pub async fn pass(&self, options: &Options) -> Result<bool, LockError> {
        with_lock(&self.client, "k", options, |lock: Lock| async move { lock.held() }).await
    }

    /// A task that waits for the lock and gives what came of it.
    pub async fn waiting(&self, options: &Options) -> tokio::task::JoinHandle<Result<bool, LockError>> {
        let (client, options) = (self.client.clone(), options.clone());
        let work = |lock: Lock| async move { lock.held() };
        let task = tokio::spawn(async move { with_lock(&client, "k", &options, work).await });
        until("it waits", async || self.waiters().await == 1).await;
        task
    }

    /// The lock can't be had, for this reason; the work doesn't run.
    pub async fn refused(&self, options: &Options, code: Code, text: &str) -> LockError {
        let ran = Cell::new(false);
        let outcome = with_lock(&self.client, "k", options, |_| async { ran.set(true) }).await;
        let error = outcome.expect_err("refused");
        assert!(!ran.get(), "the work ran");
        assert_eq!(error.code, code, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        error
    }
}

fn client(port: u16, protocol: ProtocolVersion, login: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo) -> Client {
    let settings = login(RedisConnectionInfo::default().set_protocol(protocol));
    let info = ConnectionAddr::Tcp("127.0.0.1".into(), port).into_connection_info().expect("an address");
    Client::open(info.set_redis_settings(settings)).expect("a client")
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A minute of lifetime.
pub fn minute() -> Options {
    Options::new(ms(60_000))
}

/// Waits until it is so; fails after ten seconds.
pub async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !check().await {
        assert!(began.elapsed() < ms(10_000), "not within 10 s: {what}");
        sleep(ms(5)).await;
    }
}
