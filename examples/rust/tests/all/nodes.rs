//! Servers that are several: a primary behind Sentinel, and the nodes of a Cluster.

use prlock_client::{Code, Lock, Options, with_lock};
use redis::sentinel::{SentinelClient, SentinelServerType};
use tokio::time::{sleep, timeout};

use crate::support::*;

#[tokio::test]
async fn behind_sentinel_the_next_lock_is_the_new_primarys() {
    timeout(ms(60_000), async {
        let mut primary = Server::start(&[]).await;
        let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]).await;
        until("the replica is in sync", async || replica.info("replication", "master_link_status").await == "up").await;
        let sentinel = Server::sentinel(primary.port).await;
        until("the sentinel knows the replica", async || {
            sentinel.raw(&["SENTINEL", "REPLICAS", "locks"]).await.contains("master-link-status\r\n$2\r\nok")
        })
        .await;
        let mut asked = SentinelClient::build(vec![sentinel.url()], "locks".into(), None, SentinelServerType::Master)
            .expect("a client");

        let client = asked.async_get_client().await.expect("the primary's address");
        let options = Options::new(ms(2000)).retry(ms(100));
        let lost = with_lock(&client, "k", &options, |lock: Lock| {
            let (primary, replica) = (&mut primary, &replica);
            async move {
                until("it is replicated", async || replica.number(&["EXISTS", "k"]).await == 1).await;
                primary.kill();
                assert!(lock.held());
                sleep(ms(20_000)).await;
            }
        });
        assert_eq!(lost.await.expect_err("lost").code, Code::Lost);
        until("the replica takes over", async || replica.info("replication", "role").await == "master").await;
        // Until the failover is over the sentinel names no primary.
        let client = loop {
            match asked.async_get_client().await {
                Ok(client) => break client,
                Err(_) => sleep(ms(20)).await,
            }
        };
        let options = minute().wait(ms(5000));
        let there = with_lock(&client, "k", &options, async |lock: Lock| {
            lock.held() && replica.number(&["EXISTS", "k"]).await == 1
        });
        assert!(there.await.expect("a lock"));
    })
    .await
    .expect("within a minute");
}

/// The wrong node's refusal names the right one, as the README says.
#[tokio::test]
async fn in_a_cluster_the_keys_node_has_the_lock() {
    let nodes =
        [Server::start(&["--cluster-enabled", "yes"]).await, Server::start(&["--cluster-enabled", "yes"]).await];
    for (node, slots) in nodes.iter().zip([["0", "8191"], ["8192", "16383"]]) {
        assert_eq!(node.raw(&[&["CLUSTER", "ADDSLOTSRANGE"], &slots[..]].concat()).await, "+OK\r\n");
    }
    nodes[0].raw(&["CLUSTER", "MEET", "127.0.0.1", &nodes[1].port.to_string()]).await;
    for node in &nodes {
        until("the cluster is up", async || {
            let nodes = node.raw(&["CLUSTER", "NODES"]).await;
            nodes.matches(" connected ").count() == 2
                && node.raw(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")
        })
        .await;
    }
    // The slot of `a` is in the second half.
    let wrong = redis::Client::open(nodes[0].url()).expect("a client");
    let error =
        with_lock(&wrong, "a", &minute(), |_| async { panic!("the work ran") }).await.expect_err("another node's");
    assert_eq!(error.code, Code::Cluster);
    let address = format!("127.0.0.1:{}", nodes[1].port);
    assert!(error.to_string().contains(&format!("MOVED 15495 {address}")), "{error}");
    let right = redis::Client::open(format!("redis://{address}")).expect("a client");
    assert!(
        with_lock(&right, "a", &minute().wait(ms(100)), |lock: Lock| async move { lock.held() }).await.expect("a lock")
    );
    assert_eq!(nodes[1].number(&["DBSIZE"]).await, 0);
}
