//! Whether a lock is surely still ours.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::errors::{Code, LockError};

/// Why a lock is not held any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server says that it is not ours.
    Taken,
    /// No renewal came through for its whole lifetime.
    Deadline,
    /// The work is over.
    Released,
}

/// What the work gets: a lock that is renewed until it is released or lost. Clones are the same lock.
#[derive(Clone, Debug)]
pub struct Lock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: Vec<u8>,
    fence: i64,
    ttl: Duration,
    /// When the last claim or renewal that succeeded was sent: from then on the lock is safe for a lifetime.
    proven_at: Mutex<Instant>,
    why: watch::Sender<Option<Why>>,
}

impl Lock {
    pub(crate) fn new(key: &[u8], fence: i64, ttl: Duration, proven_at: Instant) -> Self {
        let why = watch::Sender::new(None);
        Self(Arc::new(Inner { key: key.to_vec(), fence, ttl, proven_at: Mutex::new(proven_at), why }))
    }

    /// The number of this grant: give it to what the lock protects, so that it can refuse an older holder.
    pub fn fence(&self) -> i64 {
        self.0.fence
    }

    /// Whether the lock is surely still this process's, by the clock of this very moment. Once false, always.
    pub fn held(&self) -> bool {
        if Instant::now() >= self.deadline() {
            self.lose(Why::Deadline);
        }
        self.0.why.borrow().is_none()
    }

    /// An error if the lock is not held any more. Ask before a step that can't be undone.
    pub fn check(&self) -> Result<(), LockError> {
        if self.held() { Ok(()) } else { Err(self.lost_error()) }
    }

    /// Comes back when the lock is not held any more, and says why.
    pub async fn lost(&self) -> Why {
        let mut changes = self.0.why.subscribe();
        loop {
            self.held();
            if let Some(why) = *changes.borrow_and_update() {
                return why;
            }
            let deadline = tokio::time::Instant::from_std(self.deadline());
            // A renewal moves the deadline: then another turn.
            let _ = tokio::time::timeout_at(deadline, changes.changed()).await;
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        *self.0.proven_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) + self.0.ttl
    }

    pub(crate) fn renewed(&self, sent_at: Instant) {
        let mut proven_at = self.0.proven_at.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *proven_at = sent_at.max(*proven_at);
    }

    /// The first reason counts.
    pub(crate) fn lose(&self, why: Why) {
        self.0.why.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(why);
            first
        });
    }

    pub(crate) fn lost_error(&self) -> LockError {
        let why = match *self.0.why.borrow() {
            Some(Why::Deadline) => "no renewal has come through since a whole lifetime, so another may hold it by now",
            Some(Why::Released) => "it has been released: the work is over",
            _ => "the server says that this token no longer holds it (it lapsed, or was stolen, revoked or deleted)",
        };
        let key = String::from_utf8_lossy(&self.0.key);
        LockError::new(Code::Lost, false, format!("The lock {key:?} is lost: {why}."))
    }
}
