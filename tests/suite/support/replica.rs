//! Replicas.

use super::wait::{PATIENCE, wait_until};
use super::{Builder, Server};

impl Server {
    /// Starts a replica of this server with the same module and waits until it is in sync.
    #[track_caller]
    pub fn replica(&self) -> Server {
        self.replica_with(|builder| builder)
    }

    /// The same with more settings.
    #[track_caller]
    pub fn replica_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Server {
        let replica = settings(self.plan().without_config().replica_of(self)).start();
        replica.wait_in_sync_with(self);
        replica
    }

    /// Waits until the link to the primary is up and all that the primary has done by now has arrived.
    #[track_caller]
    pub fn wait_in_sync_with(&self, primary: &Server) {
        wait_until("the replica's link to be up", PATIENCE, || {
            (self.find_info_field("master_link_status")? == "up").then_some(())
        });
        wait_for_offset_equal(primary, self);
    }

    /// Whether this server is a primary, by its own word.
    #[track_caller]
    pub fn is_primary(&self) -> bool {
        self.info_field("role") == "master"
    }
}

/// Waits until the replica has carried out all that the primary has done by now.
#[track_caller]
pub fn wait_for_offset_equal(primary: &Server, replica: &Server) {
    let due = primary.info_number("master_repl_offset");
    wait_until("the replica to catch up", PATIENCE, || {
        let done: i64 = replica.find_info_field("slave_repl_offset")?.parse().ok()?;
        (done >= due).then_some(())
    });
}
