//! What can be wrong with a server or its address: the example says what it is and what to do, and never claims that it
//! holds a lock.

use crate::support::*;
use prlock_client::{Code, Lock, Options, revoke, with_lock};
use tokio::time::sleep;

const SECRET: &str = "a-token-that-nobody-may-see";

impl World {
    /// Every way to a lock fails with this code and this advice, without a word of the token.
    async fn refuses(&self, code: Code, text: &str) {
        let options = Options::new(ms(1000)).token(SECRET).retry(ms(200)).reply(ms(1000));
        let ways = [options.clone().wait(ms(100)), options.clone().steal(), options.clone().linger(ms(0)), options];
        for options in ways {
            let error = self.refused(&options, code, text).await;
            assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        }
    }

    async fn user(&mut self, rights: &[&str]) {
        let reply = self.server.raw(&[&["ACL", "SETUSER", "worker", "reset", "on", ">secret"], rights].concat()).await;
        assert_eq!(reply, "+OK\r\n");
        self.log_in(|login| login.set_username("worker").set_password("secret"));
    }
}

both! {

no_module(world) {
    let world = World::on(Server::without_module(free_port().await).await, world.protocol).await;
    world.refuses(Code::NoModule, "loadmodule").await;
    assert_eq!(revoke(&world.client, "worker-7").await.expect_err("no module").code, Code::NoModule);
}

the_server_dies_with_the_lock_and_comes_back_without_the_module(world) {
    for comes_back in [false, true] {
        let mut world = World::start(world.protocol).await;
        let client = world.client.clone();
        let options = Options::new(ms(1000)).retry(ms(100));
        let mut bare = None;
        let lost = with_lock(&client, "k", &options, |lock: Lock| {
            let (world, bare) = (&mut world, &mut bare);
            async move {
                let port = world.server.port;
                world.server.kill();
                if comes_back {
                    *bare = Some(Server::without_module(port).await);
                }
                assert!(lock.held());
                sleep(ms(20_000)).await;
            }
        });
        assert_eq!(lost.await.expect_err("lost").code, Code::Lost);
        let (code, advice) =
            if bare.is_some() { (Code::NoModule, "loadmodule") } else { (Code::Connection, "is it running") };
        world.refused(&minute().retry(ms(100)), code, advice).await;
    }
}

the_server_dies_during_the_wait(world) {
    world.rival(&[]).await;
    let waiter = world.waiting(&minute().wait(ms(1000)).retry(ms(100))).await;
    world.server.kill();
    assert_eq!(waiter.await.expect("no panic").expect_err("no server").code, Code::Connection);
}

an_old_module(world) {
    world.proxy.next("\r\nLINGER\r\n", Fate::Answer("-ERR syntax error\r\n"), 2);
    for wait in [0, 100] {
        world.refused(&minute().linger(ms(0)).wait(ms(wait)), Code::OldModule, "Upgrade").await;
    }
    world.pass(&minute()).await.expect("without the option");
}

a_replica(world) {
    let replica = Server::start(&["--replicaof", "127.0.0.1", &world.server.port.to_string()]).await;
    until("in sync", async || replica.info("replication", "master_link_status").await == "up").await;
    let world = World::on(replica, world.protocol).await;
    world.refuses(Code::Replica, "connect to it").await;
}

a_primary_that_becomes_a_replica(world) {
    world.rival(&[]).await;
    let waiter = world.waiting(&minute().wait(ms(20_000))).await;
    world.server.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(waiter.await.expect("no panic").expect_err("a replica").code, Code::Replica);
}

a_holder_on_a_primary_that_becomes_a_replica(world) {
    let options = Options::new(ms(400)).retry(ms(0));
    let lost = with_lock(&world.client, "k", &options, |_| async {
        world.server.raw(&["REPLICAOF", "127.0.0.1", "1"]).await;
        sleep(ms(20_000)).await;
    });
    assert_eq!(lost.await.expect_err("lost").code, Code::Lost);
}

passwords(world) {
    let mut world = World::on(Server::start(&["--requirepass", "right"]).await, world.protocol).await;
    world.refuses(Code::Password, "user or password").await;
    world.log_in(|login| login.set_password("wrong"));
    world.refuses(Code::Password, "user or password").await;
    world.log_in(|login| login.set_username("nobody").set_password("right"));
    world.refuses(Code::Password, "user or password").await;
    world.log_in(|login| login.set_password("right"));
    assert!(world.pass(&minute().wait(ms(100))).await.expect("done"));
}

rights(world) {
    // As the advice says.
    world.user(&["~k", "+prlock.claim", "+prlock.renew", "+prlock.release", "+prlock.revoke"]).await;
    with_lock(&world.client, "k", &Options::new(ms(1500)).wait(ms(100)).linger(ms(0)), |_| sleep(ms(1800))).await.expect("done");
    assert_eq!(revoke(&world.client, "worker-7").await.expect("allowed"), 0);
    world.user(&["~other:*", "+@all"]).await;
    world.refuses(Code::Rights, "ACL SETUSER").await;
    world.user(&["~*", "+@all", "-prlock.claim"]).await;
    world.refuses(Code::Rights, "ACL SETUSER").await;
    world.user(&["~*", "+@all", "-prlock.renew"]).await;
    let lost = with_lock(&world.client, "k", &Options::new(ms(300)), |_| sleep(ms(20_000))).await;
    assert_eq!(lost.expect_err("lost").code, Code::Lost);
    world.user(&["~*", "+@all", "-prlock.release"]).await;
    assert!(world.pass(&Options::new(ms(100))).await.expect("done"));
    until("lapsed", async || world.keys().await == 0).await;
}

out_of_memory(world) {
    with_lock(&world.client, "held", &Options::new(ms(1200)), |lock: Lock| {
        let world = &world;
        async move {
            world.server.raw(&["CONFIG", "SET", "maxmemory", "1"]).await;
            world.refuses(Code::Memory, "maxmemory").await;
            sleep(ms(1300)).await;
            lock.check().expect("renewed all the same");
        }
    }).await.expect("done");
    assert_eq!(world.keys().await, 0);
}

another_type(world) {
    world.server.raw(&["LPUSH", "k", "1"]).await;
    world.refuses(Code::Type, "another key").await;
}

no_server(world) {
    world.proxy.cut();
    world.refuses(Code::Connection, "is it running").await;
}

something_else_than_a_server(world) {
    for reply in ["+OK\r\n", ":1\r\n", "*2\r\n+t\r\n+x\r\n"] {
        world.proxy.next("PRLOCK.CLAIM", Fate::Answer(reply), 1);
        world.refused(&minute(), Code::Server, "What server").await;
    }
}

a_passing_error_is_no_refusal(world) {
    for reply in ["-LOADING loading\r\n", "-NOREPLICAS few\r\n", "-UNBLOCKED elsewhere\r\n"] {
        world.proxy.next("PRLOCK.CLAIM", Fate::Answer(reply), 1);
    }
    assert!(world.pass(&minute()).await.expect("done"));
    assert_eq!(world.proxy.struck(), 3);
}

}
