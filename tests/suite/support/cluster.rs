//! Redis Cluster on loopback.

use redis::Value;

use super::wait::{PATIENCE, wait_until};
use super::{Builder, Conn, Server, int, text};

const SLOTS: usize = 16_384;
/// Without an answer for so long a node counts as lost.
const NODE_TIMEOUT_MS: &str = "1500";

/// Nodes of one cluster: first the primaries, among which the slots are shared out evenly, then a replica of each, if any.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Server>,
    primaries: usize,
}

impl Builder {
    /// A node for a cluster.
    pub fn cluster_node(self) -> Self {
        self.config("cluster-enabled", "yes").config("cluster-node-timeout", NODE_TIMEOUT_MS)
    }
}

impl Cluster {
    /// Starts a cluster and waits until every node serves.
    #[track_caller]
    pub fn start(primaries: usize, with_replicas: bool) -> Self {
        let count = if with_replicas { 2 * primaries } else { primaries };
        let nodes: Vec<Server> = (0..count).map(|_| Server::builder().cluster_node().start()).collect();
        let share = SLOTS.div_ceil(primaries);
        for (number, node) in nodes.iter().enumerate() {
            let mut conn = node.conn();
            conn.ok(("CLUSTER", "SET-CONFIG-EPOCH", number + 1));
            if number < primaries {
                let last = ((number + 1) * share).min(SLOTS) - 1;
                conn.ok(("CLUSTER", "ADDSLOTSRANGE", number * share, last));
            }
            conn.ok(("CLUSTER", "MEET", "127.0.0.1", nodes[0].port()));
        }
        let cluster = Self::of(nodes, primaries);
        cluster.wait_known();
        for (number, replica) in cluster.nodes.iter().enumerate().skip(primaries) {
            replica.conn().ok(("CLUSTER", "REPLICATE", cluster.nodes[number - primaries].cluster_id()));
        }
        cluster.wait_ready();
        cluster
    }

    /// Nodes that others have made a cluster of.
    pub fn of(nodes: Vec<Server>, primaries: usize) -> Self {
        Self { nodes, primaries }
    }

    /// Waits until every node knows every other and serves its slots, all agree whose they are, and the replicas follow.
    #[track_caller]
    pub fn wait_ready(&self) {
        self.wait_known();
        wait_until("the nodes to agree on the slots", PATIENCE, || {
            let mut maps = self.nodes.iter().map(|node| slot_map(&mut node.conn()));
            let first = maps.next()??;
            maps.all(|map| map.as_ref() == Some(&first)).then_some(())
        });
        for node in &self.nodes {
            wait_until("the cluster to be up", PATIENCE, || {
                let mut conn = node.conn();
                let state = text(&conn.ok(("CLUSTER", "INFO")));
                let slots = text(&conn.ok(("CLUSTER", "NODES")));
                let is_linked = node.is_primary() || node.find_info_field("master_link_status")? == "up";
                (state.contains("cluster_state:ok") && !slots.contains("fail") && is_linked).then_some(())
            });
        }
    }

    fn wait_known(&self) {
        for node in &self.nodes {
            wait_until("the nodes to know each other", PATIENCE, || {
                let nodes = text(&node.conn().ok(("CLUSTER", "NODES")));
                (nodes.lines().count() == self.nodes.len() && !nodes.contains("handshake")).then_some(())
            });
        }
    }

    /// The first primaries; a failover changes who is one.
    pub fn primaries(&self) -> &[Server] {
        &self.nodes[..self.primaries]
    }

    /// The node that owns the slot, by the word of all nodes at once.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> &Server {
        wait_until("one owner of the slot", PATIENCE, || {
            let mut owners = self.nodes.iter().map(|node| slot_owner(&mut node.conn(), slot));
            let first = owners.next()??;
            owners.all(|owner| owner == Some(first)).then_some(())?;
            self.nodes.iter().find(|node| node.port() == first)
        })
    }
}

/// First and last slot of each range and the port of its primary, as this node sees it.
fn slot_map(conn: &mut Conn) -> Option<Vec<(i64, i64, i64)>> {
    let Value::Array(ranges) = conn.call(("CLUSTER", "SLOTS")).ok()? else { return None };
    let mut all: Vec<_> = ranges
        .iter()
        .map(|range| {
            let range = super::items(range);
            (int(&range[0]), int(&range[1]), int(&super::items(&range[2])[1]))
        })
        .collect();
    all.sort_unstable();
    Some(all)
}

/// The port of the primary of a slot, as this node sees it.
pub fn slot_owner(conn: &mut Conn, slot: u16) -> Option<u16> {
    let ranges = slot_map(conn)?;
    let range = ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&i64::from(slot)))?;
    u16::try_from(range.2).ok()
}

impl Server {
    /// Its id in the cluster.
    #[track_caller]
    pub fn cluster_id(&self) -> String {
        text(&self.conn().ok(("CLUSTER", "MYID")))
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        u16::try_from(int(&self.conn().ok(("CLUSTER", "KEYSLOT", key)))).expect("a slot")
    }

    /// Begins to move a slot to another node: what is not here any more is asked of that one.
    #[track_caller]
    pub fn begin_to_move_slot(&self, slot: u16, target: &Server) {
        target.conn().ok(("CLUSTER", "SETSLOT", slot, "IMPORTING", self.cluster_id()));
        self.conn().ok(("CLUSTER", "SETSLOT", slot, "MIGRATING", target.cluster_id()));
    }

    /// Moves one key; nothing happens if it is not there.
    #[track_caller]
    pub fn migrate_key(&self, key: &[u8], target: &Server) {
        self.conn().ok(("MIGRATE", "127.0.0.1", target.port(), key, 0, 10_000));
    }

    /// Moves the keys that are still here, and then the slot.
    #[track_caller]
    pub fn finish_to_move_slot(&self, slot: u16, target: &Server) {
        let mut conn = self.conn();
        loop {
            let keys = super::items(&conn.ok(("CLUSTER", "GETKEYSINSLOT", slot, 100)));
            if keys.is_empty() {
                break;
            }
            keys.iter().for_each(|key| self.migrate_key(&super::bytes(key), target));
        }
        let id = target.cluster_id();
        target.conn().ok(("CLUSTER", "SETSLOT", slot, "NODE", &id));
        conn.ok(("CLUSTER", "SETSLOT", slot, "NODE", &id));
    }
}
