//! What happened since the server started, as `INFO prlock` shows it.

/// Counters, each a number of events since the module was loaded. Refused and waited are kept apart: a wait is no failure.
#[derive(Debug, Default, Clone)]
pub struct Stats {
    /// New grants: of a free key, and by a steal.
    pub claims_granted: u64,
    /// CLAIM answered with null at once.
    pub claims_refused: u64,
    /// CLAIM of a lock by the token that already held it.
    pub claims_repeated: u64,
    /// Grants to a client that waited.
    pub claims_after_wait: u64,
    /// Claims that were put into a queue.
    pub waits_started: u64,
    /// Waits that ended because their time was up.
    pub waits_timed_out: u64,
    /// Waits that ended because the client left, was unblocked or was sent elsewhere.
    pub waits_abandoned: u64,
    /// RENEW answered with 1.
    pub renewals: u64,
    /// RENEW answered with 0.
    pub renewals_refused: u64,
    /// RELEASE answered with 1.
    pub releases: u64,
    /// RELEASE answered with 0.
    pub releases_refused: u64,
    /// Grants by STEAL or STEALIF in place of a holder.
    pub steals: u64,
    /// Locks freed by REVOKE.
    pub revoked: u64,
    /// Deadlines cut because the holder's connection closed.
    pub lingered: u64,
    /// Ended at their deadline.
    pub expired: u64,
    /// Thrown out by the server for want of memory.
    pub evicted: u64,
    /// Gone by DEL, UNLINK, FLUSHDB, SET over it and their like.
    pub deleted: u64,
}
