//! Redis Cluster: which node lists and frees what, slots that move with held locks and waiters, and primaries that hand
//! over.

use std::time::Duration;

use crate::support::*;

const DAY_MS: i64 = 86_400_000;
/// More data than a node has in the beginning, and less than a slot that moves.
const ARRIVED_BYTES: i64 = 1_000_000;

/// What moves with a lock.
#[track_caller]
fn life(server: &Server, key: &str) -> (Vec<u8>, i64, i64) {
    let mut conn = server.conn();
    // Where the slot is being imported, the key is served to who asks so.
    conn.ok(("ASKING",));
    let info = map(&conn.ok(("PRLOCK.INFO", key)));
    conn.ok(("ASKING",));
    let deadline = int(&conn.ok(("PEXPIRETIME", key)));
    (bytes(&info["holder"]), int(&info["fence"]), deadline)
}

fn held(server: &Server) -> usize {
    server.info_number("prlock_held").try_into().expect("a count")
}

fn listed(server: &Server) -> Vec<Vec<u8>> {
    items(&server.conn().ok(("PRLOCK.LIST",))).iter().map(|row| bytes(&map(row)["key"])).collect()
}

#[track_caller]
fn claim(server: &Server, key: &str) {
    let grant = server.conn().ok(("PRLOCK.CLAIM", key, "PX", DAY_MS, "TOKEN", "t", "HOLDER", "h"));
    assert_ne!(grant, Value::Nil);
}

/// A key in a slot of this node.
#[track_caller]
fn key_of(cluster: &Cluster, node: usize) -> String {
    let port = cluster.nodes[node].port();
    let mut conn = cluster.nodes[0].conn();
    (0..)
        .map(|number| format!("k{number}"))
        .find(|key| slot_owner(&mut conn, cluster.nodes[0].slot(key)) == Some(port))
        .expect("a key")
}

#[track_caller]
fn is_told_to_look_elsewhere(waiter: &mut Waiter) {
    let error = waiter.reply(PATIENCE).expect_err("no grant where the key is not");
    assert!(error.starts_with("TRYAGAIN") || error.starts_with("MOVED"), "{error}");
    waiter.assert_no_more_replies();
}

/// CASES 62: LIST and REVOKE run on every node, and see what lies there; the keyed commands are routed.
#[test]
fn list_and_revoke_run_on_every_node_and_keyed_commands_are_routed() {
    let cluster = Cluster::start(2, false);
    let keys = [key_of(&cluster, 0), key_of(&cluster, 1)];
    for (node, key) in cluster.nodes.iter().zip(&keys) {
        claim(node, key);
    }
    for (number, (node, key)) in cluster.nodes.iter().zip(&keys).enumerate() {
        assert_eq!(listed(node), [key.as_bytes()]);
        let other = &keys[1 - number];
        assert!(node.conn().err(("PRLOCK.CLAIM", other, "PX", 1_000)).starts_with("MOVED"));
        assert!(node.conn().err(("PRLOCK.RENEW", other, "t", "PX", 1_000)).starts_with("MOVED"));
        assert!(node.conn().err(("PRLOCK.RELEASE", other, "t")).starts_with("MOVED"));
        assert!(node.conn().err(("PRLOCK.INFO", other)).starts_with("MOVED"));
    }
    for (node, key) in cluster.nodes.iter().zip(&keys) {
        assert_eq!(node.conn().ok(("PRLOCK.REVOKE", "h")), Value::Int(1));
        assert_eq!(node.conn().ok(("EXISTS", key)), Value::Int(0));
    }
}

/// CASES 63: a slot moves key by key; the lock moves whole, and its waiters are told.
#[test]
fn a_lock_moves_with_its_slot_and_its_waiters_are_told() {
    let cluster = Cluster::start(2, false);
    let [source, target] = &cluster.nodes[..] else { panic!("two nodes") };
    let key = &*key_of(&cluster, 0);
    let slot = source.slot(key);
    claim(source, key);
    let before = life(source, key);
    let mut waiter = source.waiter(("PRLOCK.CLAIM", key, "PX", 1_000, "BLOCK", 0));

    source.begin_to_move_slot(slot, target);
    assert_eq!(
        source.conn().ok(("PRLOCK.RENEW", key, "t", "PX", DAY_MS)),
        Value::Int(1),
        "still here, and served here"
    );
    let before = (before.0, before.1, life(source, key).2);
    source.migrate_key(key.as_bytes(), target);
    is_told_to_look_elsewhere(&mut waiter);
    assert!(listed(source).is_empty());
    assert_eq!(listed(target), [key.as_bytes()]);
    let after = life(target, key);
    assert_eq!((&after.0, after.1), (&before.0, before.1));
    // MIGRATE carries the rest of the deadline and not the deadline: it grows by the time on the way, and never shrinks.
    assert!((before.2..before.2 + 5_000).contains(&after.2), "{before:?}, then {after:?}");
    // In between both nodes are asked, and there is one holder.
    assert!(source.conn().err(("PRLOCK.RENEW", key, "t", "PX", DAY_MS)).starts_with("ASK"));
    assert!(source.conn().err(("PRLOCK.CLAIM", key, "PX", 1_000)).starts_with("ASK"));
    let mut asking = target.conn();
    asking.ok(("ASKING",));
    assert_eq!(asking.ok(("PRLOCK.CLAIM", key, "PX", 1_000)), Value::Nil);

    source.finish_to_move_slot(slot, target);
    assert_eq!(life(target, key), after);
    assert_eq!(target.conn().ok(("PRLOCK.RENEW", key, "t", "PX", DAY_MS)), Value::Int(1));
    let mut waiter = target.waiter(("PRLOCK.CLAIM", key, "PX", 1_000, "BLOCK", 0));
    assert_eq!(target.conn().ok(("PRLOCK.RELEASE", key, "t")), Value::Int(1));
    let grant = items(&waiter.reply(PATIENCE).expect("a grant"));
    assert!(int(&grant[1]) > before.1, "the fence rises from node to node");
}

/// CASES 63: a lock that lapses in a slot on its way is granted by neither node to those who wait at the old one.
#[test]
fn a_lock_that_lapses_in_a_slot_on_its_way_is_granted_at_the_new_node_only() {
    let cluster = Cluster::start(2, false);
    let [source, target] = &cluster.nodes[..] else { panic!("two nodes") };
    let key = &*key_of(&cluster, 0);
    claim(source, key);
    let mut waiter = source.waiter(("PRLOCK.CLAIM", key, "PX", 1_000, "BLOCK", 0));
    source.begin_to_move_slot(source.slot(key), target);
    source.conn().ok(("PEXPIRE", key, 1));
    is_told_to_look_elsewhere(&mut waiter);
    assert!(source.conn().err(("PRLOCK.CLAIM", key, "PX", 1_000)).starts_with("ASK"));
    let mut asking = target.conn();
    asking.ok(("ASKING",));
    assert_ne!(asking.ok(("PRLOCK.CLAIM", key, "PX", 1_000)), Value::Nil);
}

/// A node that hears that its slot is another's drops the keys in it. On Redis 7.0 nothing but the type's own hook tells.
#[test]
fn a_slot_lost_at_once_ends_the_waits_and_drops_the_locks() {
    let cluster = Cluster::start(2, false);
    let [loser, winner] = &cluster.nodes[..] else { panic!("two nodes") };
    let key = &*key_of(&cluster, 0);
    claim(loser, key);
    let mut waiter = loser.waiter(("PRLOCK.CLAIM", key, "PX", 1_000, "BLOCK", 0));
    let mut conn = winner.conn();
    conn.ok(("CLUSTER", "SETSLOT", winner.slot(key), "IMPORTING", loser.cluster_id()));
    conn.ok(("CLUSTER", "SETSLOT", winner.slot(key), "NODE", winner.cluster_id()));
    let _ = conn.call(("CLUSTER", "BUMPEPOCH"));
    is_told_to_look_elsewhere(&mut waiter);
    wait_until("the locks of the lost slot to go", PATIENCE, || listed(loser).is_empty().then_some(()));
    claim(winner, key);
    assert!(loser.conn().err(("PRLOCK.CLAIM", key, "PX", 1_000)).starts_with("MOVED"));
}

/// A replica takes over: waiters are told, the lock is there with its fence, and the next grant's is greater.
#[test]
fn a_failover_tells_the_waiters_and_keeps_the_locks() {
    let cluster = Cluster::start(3, true);
    let key = &*key_of(&cluster, 0);
    let (primary, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    claim(primary, key);
    let before = life(primary, key);
    let mut waiter = primary.waiter(("PRLOCK.CLAIM", key, "PX", 1_000, "BLOCK", 0));
    wait_for_offset_equal(primary, replica);
    replica.conn().ok(("CLUSTER", "FAILOVER"));
    let error = waiter.reply(PATIENCE).expect_err("no grant on a replica");
    assert!(["UNBLOCKED", "MOVED", "TRYAGAIN"].iter().any(|code| error.starts_with(code)), "{error}");
    cluster.wait_ready();
    assert_eq!(life(replica, key), before);
    assert_eq!(replica.conn().ok(("PRLOCK.RELEASE", key, "t")), Value::Int(1));
    let grant = items(&replica.conn().ok(("PRLOCK.CLAIM", key, "PX", 1_000)));
    assert!(int(&grant[1]) > before.1);
}

/// Valkey 9 moves a slot in one step: until then the target shows nothing of it, and frees nothing in it.
#[test]
fn a_slot_that_moves_in_one_step_takes_its_locks_along_and_shows_them_nowhere_twice() {
    if !server_kind().moves_slots_in_one_step() {
        // The command is not there, and the module did not make it so.
        let cluster = Cluster::start(2, false);
        let id = cluster.nodes[1].cluster_id();
        cluster.nodes[0].conn().err(("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 0, 0, "NODE", id));
        return;
    }
    let cluster = Cluster::start(2, true);
    let [source, target, _, replica] = &cluster.nodes[..] else { panic!("two nodes and their replicas") };
    let home = key_of(&cluster, 0);
    let slot = source.slot(&home);
    let keys: Vec<String> = (0..20).map(|number| format!("{{{home}}}-{number}")).collect();
    keys.iter().for_each(|key| claim(source, key));
    // Large enough that the first keys are sent before the last is looked at; and so slow that there is time to look.
    for number in 0..20 {
        source.conn().ok(("SET", format!("{{{home}}}-large-{number}"), "x".repeat(200_000)));
    }
    let before: Vec<_> = keys.iter().map(|key| life(source, key)).collect();
    source.conn().ok(("CONFIG", "SET", "rdb-key-save-delay", 60_000));

    // Cancelled in the middle: nothing has happened.
    begin(source, target, slot);
    assert!(listed(target).is_empty(), "locks of a slot that is not the target's yet");
    wait_until("some of the slot to arrive at the replica", PATIENCE, || {
        (replica.info_number("used_memory_dataset") > ARRIVED_BYTES).then_some(())
    });
    assert!(listed(replica).is_empty(), "locks of a slot that is not the target's yet");
    assert_eq!(target.conn().ok(("PRLOCK.REVOKE", "h")), Value::Int(0));
    source.conn().ok(("CLUSTER", "CANCELSLOTMIGRATIONS"));
    wait_until("the target to drop what it got", PATIENCE, || {
        (target.info_number("used_memory_dataset") < ARRIVED_BYTES).then_some(())
    });
    assert!(listed(target).is_empty());
    wait_until("nothing to count at the target", PATIENCE, || (held(target) == 0).then_some(()));
    assert_eq!(listed(source).len(), keys.len());
    assert_eq!(held(source), keys.len());

    // Carried through, with a change on the way, and somebody who waits.
    begin(source, target, slot);
    assert!(listed(target).is_empty());
    assert_eq!(source.conn().ok(("PRLOCK.RELEASE", &keys[0], "t")), Value::Int(1));
    assert_eq!(source.conn().ok(("PRLOCK.RENEW", &keys[1], "t", "PX", DAY_MS)), Value::Int(1));
    let mut waiter = source.waiter(("PRLOCK.CLAIM", &keys[2], "PX", 1_000, "BLOCK", 0));
    let renewed = life(source, &keys[1]);
    source.conn().ok(("CONFIG", "SET", "rdb-key-save-delay", 0));
    is_told_to_look_elsewhere(&mut waiter);
    wait_until("the slot to be the target's", PATIENCE, || {
        (slot_owner(&mut target.conn(), slot)? == target.port()).then_some(())
    });
    assert_eq!(listed(target).len(), keys.len() - 1);
    wait_until("the replica to show them", PATIENCE, || (listed(replica).len() == keys.len() - 1).then_some(()));
    assert_eq!(life(target, &keys[1]), renewed);
    for (key, before) in keys.iter().zip(&before).skip(2) {
        assert_eq!(life(target, key), *before);
    }
    wait_until("the source to drop what it gave", PATIENCE, || listed(source).is_empty().then_some(()));
    wait_until("nothing to count at the source", PATIENCE, || (held(source) == 0).then_some(()));
    assert_eq!(held(target), keys.len() - 1);
    let grant = items(&target.conn().ok(("PRLOCK.CLAIM", &keys[0], "PX", 1_000)));
    assert!(int(&grant[1]) > before[keys.len() - 1].1, "the fence rises from node to node");
    assert_eq!(target.conn().ok(("PRLOCK.REVOKE", "h")), Value::Int(i64::try_from(keys.len() - 1).expect("a number")));
}

/// Begins to move the slot in one step, and waits until some of it has arrived.
#[track_caller]
fn begin(source: &Server, target: &Server, slot: u16) {
    source.conn().ok(("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.cluster_id()));
    wait_until("some of the slot to arrive", Duration::from_secs(20), || {
        (target.info_number("used_memory_dataset") > ARRIVED_BYTES).then_some(())
    });
    assert_eq!(slot_owner(&mut target.conn(), slot), Some(source.port()));
}

/// The line of docs/operations.md that asks every primary for its locks.
#[test]
fn the_documented_call_lists_the_locks_of_all_nodes() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md")).expect("the page");
    let line = page.lines().find(|line| line.starts_with("redis-cli --cluster call ")).expect("the documented line");
    let cluster = Cluster::start(2, false);
    let keys = [key_of(&cluster, 0), key_of(&cluster, 1)];
    for (node, key) in cluster.nodes.iter().zip(&keys) {
        claim(node, key);
    }
    let line = line.replace(":7001 ", &format!(":{} ", cluster.nodes[0].port()));
    let output = std::process::Command::new("sh").args(["-c", &line]).output().expect("sh");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{line}: {text}{}", String::from_utf8_lossy(&output.stderr));
    for key in &keys {
        assert!(text.contains(key.as_str()), "{key} is missing from {text}");
    }
}
