use std::time::Duration;

/// How a lock is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) holder: Option<Vec<u8>>,
    pub(crate) linger: Option<Duration>,
    pub(crate) steal: Steal,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) reply: Duration,
    pub(crate) retry: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steal {
    No,
    FromAnyone,
    FromGrant(i64),
}

impl Options {
    /// The lock lapses this long after the last renewal that came through. Renewed at a third of it.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            wait: Some(Duration::ZERO),
            holder: None,
            linger: None,
            steal: Steal::No,
            token: None,
            reply: Duration::from_secs(5),
            retry: Duration::from_secs(3),
        }
    }

    /// How long to wait in the server's queue while another holds the lock. Without it: not at all.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = Some(time);
        self
    }

    /// Waits without limit.
    pub fn wait_for_ever(mut self) -> Self {
        self.wait = None;
        self
    }

    /// A public label, such as `worker-7`.
    pub fn holder(mut self, holder: impl Into<Vec<u8>>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// The lock is free so soon after this process's connection is gone.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = Some(time);
        self
    }

    /// Takes the lock from whoever holds it. A lock that is stolen is not waited for.
    pub fn steal(mut self) -> Self {
        self.steal = Steal::FromAnyone;
        self
    }

    /// Takes the lock only from the grant with this fence, as LIST shows it.
    pub fn steal_if(mut self, fence: i64) -> Self {
        self.steal = Steal::FromGrant(fence);
        self
    }

    /// Instead of a random one: the secret that renews and releases.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// How long a reply may take before the connection counts as broken. 5 s without it.
    pub fn reply(mut self, time: Duration) -> Self {
        self.reply = time;
        self
    }

    /// How long a claim is sent again when the connection breaks or the server can't serve it. 3 s without it.
    pub fn retry(mut self, time: Duration) -> Self {
        self.retry = time;
        self
    }
}
