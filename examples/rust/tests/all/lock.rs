//! What a lock around work does, and what becomes of it when the network breaks at each step.

use std::time::Instant;

use crate::support::*;
use prlock_client::{Code, Lock, Options, Why, revoke, with_lock};
use tokio::time::{sleep, timeout};

both! {

claims_gives_the_fence_renews_and_releases(world) {
    let options = Options::new(ms(1500)).holder("worker-7").linger(ms(5000));
    let result = with_lock(&world.client, "k", &options, |lock: Lock| {
        let world = &world;
        async move {
            let info = world.server.raw(&["PRLOCK.INFO", "k"]).await;
            assert!(info.contains("worker-7") && info.contains(&format!("fence\r\n:{}\r\n", lock.fence())), "{info}");
            until("four renewals", async || world.renewals().await >= 4).await;
            lock.check().expect("held");
            assert!(!world.rival(&[]).await);
            "the work's own"
        }
    });
    assert_eq!(result.await.expect("done"), "the work's own");
    assert_eq!(world.keys().await, 0);
}

each_grant_has_a_greater_fence(world) {
    let mut last = 0;
    for _ in 0..3 {
        let fence = with_lock(&world.client, "k", &minute(), |lock: Lock| async move { lock.fence() }).await.expect("done");
        assert!(fence > last);
        last = fence;
    }
}

after_the_work_the_lock_is_not_held(world) {
    let lock = with_lock(&world.client, "k", &minute(), |lock: Lock| async move { lock }).await.expect("done");
    assert!(!lock.held());
    assert_eq!(lock.lost().await, Why::Released);
    assert_eq!(lock.check().expect_err("over").code, Code::Lost);
}

bytes_are_bytes(world) {
    let bytes = b"\0\r\n\xff".to_vec();
    let options = minute().token(bytes.clone()).holder(bytes.clone());
    with_lock(&world.client, &bytes, &options, |_| async { assert_eq!(world.keys().await, 1) }).await.expect("done");
    assert_eq!(world.keys().await, 0);
}

a_lock_that_another_holds_is_refused_or_waited_for(world) {
    assert!(world.rival(&[]).await);
    world.refused(&minute(), Code::Busy, "holder").await;
    world.refused(&minute().wait(ms(50)), Code::Busy, "holder").await;
    let waiter = world.waiting(&minute().wait_for_ever()).await;
    assert!(world.release_rival().await);
    assert!(waiter.await.expect("no panic").expect("got it"));
    assert_eq!((world.keys().await, world.waiters().await), (0, 0));
}

a_waiter_has_its_whole_lifetime(world) {
    world.rival(&[]).await;
    let waiter = world.waiting(&Options::new(ms(600)).wait(ms(20_000))).await;
    sleep(ms(700)).await;
    world.release_rival().await;
    assert!(waiter.await.expect("no panic").expect("got it"));
}

steal_drops_the_work_of_the_robbed(world) {
    let options = Options::new(ms(900));
    let robbed = with_lock(&world.client, "k", &options, |first: Lock| {
        let world = &world;
        async move {
            let wrong = minute().steal_if(first.fence() - 1);
            world.refused(&wrong, Code::Busy, "holder").await;
            assert!(world.rival(&["STEALIF", &first.fence().to_string()]).await);
            sleep(ms(20_000)).await;
        }
    });
    let error = robbed.await.expect_err("lost");
    assert_eq!(error.code, Code::Lost);
    assert!(error.to_string().contains("no longer holds"), "{error}");
    // The end of the robbed frees nothing.
    assert_eq!(world.keys().await, 1);
    assert!(world.pass(&minute().steal()).await.expect("stolen"));
    assert_eq!(world.keys().await, 0);
}

wrong_arguments(world) {
    for options in [Options::new(ms(0)), minute().steal().wait(ms(1)), minute().steal_if(1).wait_for_ever()] {
        world.refused(&options, Code::Argument, "").await;
    }
    let long = Options::new(ms(1_000_000_000_000));
    for options in [minute().token(""), long, minute().holder("h".repeat(513))] {
        world.refused(&options, Code::Argument, "out of range").await;
    }
}

linger_frees_it_when_the_connection_is_gone(world) {
    with_lock(&world.client, "k", &minute().linger(ms(0)), |_| async {
        world.proxy.cut();
        world.free().await;
        world.proxy.mend();
    }).await.expect("done");
}

linger_after_a_wait_is_bound_to_a_connection_that_stays(world) {
    world.rival(&[]).await;
    let options = Options::new(ms(600)).wait(ms(20_000)).linger(ms(0));
    let held = with_lock(&world.client, "k", &options, |lock: Lock| {
        let world = &world;
        async move {
            sleep(ms(300)).await;
            (lock.held(), world.keys().await)
        }
    });
    let release = async {
        until("it waits", async || world.waiters().await == 1).await;
        world.release_rival().await;
    };
    let (held, ()) = tokio::join!(held, release);
    assert_eq!(held.expect("done"), (true, 1));
}

connections_are_closed(world) {
    let clients = async || world.server.info("clients", "connected_clients").await;
    let before = clients().await;
    for _ in 0..5 {
        world.pass(&minute()).await.expect("done");
    }
    until("closed", async || clients().await == before).await;
}

revoke_frees_ones_own(world) {
    for (key, holder) in [("a", "worker-1"), ("b", "worker-1"), ("c", "worker-10")] {
        world.server.raw(&["PRLOCK.CLAIM", key, "PX", "60000", "HOLDER", holder]).await;
    }
    assert_eq!(revoke(&world.client, "worker-1").await.expect("done"), 2);
    assert_eq!(world.keys().await, 1);
}

work_that_is_dropped_releases(world) {
    let (client, options) = (world.client.clone(), minute());
    let task = tokio::spawn(async move { with_lock(&client, "k", &options, |_| sleep(ms(20_000))).await });
    until("held", async || world.keys().await == 1).await;
    task.abort();
    world.free().await;
}

work_that_panics_releases(world) {
    let client = world.client.clone();
    let task = tokio::spawn(async move { with_lock(&client, "k", &minute(), |_| async { panic!("the work's own") }).await });
    let result: Result<Result<(), _>, _> = task.await;
    assert!(result.expect_err("a panic").is_panic());
    world.free().await;
}

a_claim_that_is_dropped_at_any_moment_leaves_nothing(world) {
    for round in 0..60_u64 {
        if round % 4 > 1 {
            world.rival(&[]).await;
        }
        let wait = ms(round % 2 * 20_000);
        let _ = timeout(ms(round) / 20, world.pass(&minute().wait(wait))).await;
        world.release_rival().await;
        until("nothing is left", async || world.keys().await == 0 && world.waiters().await == 0).await;
    }
}

a_claim_that_is_dropped_while_its_reply_is_on_its_way_leaves_nothing(world) {
    for options in [minute(), minute().wait(ms(20_000)), minute().linger(ms(60_000))] {
        world.proxy.next("PRLOCK.CLAIM", Fate::Unheard, 1);
        world.dropped(&options, async || world.keys().await == 1).await;
    }
}

a_claim_that_is_dropped_before_it_is_sent_again_leaves_nothing(world) {
    world.proxy.next("PRLOCK.CLAIM", Fate::Unanswered, 1000);
    // By now the pauses are far longer than the attempts between them.
    world.dropped(&minute().retry(ms(60_000)), async || {
        let paused = world.proxy.struck() >= 7 && world.keys().await == 1;
        if paused {
            sleep(ms(50)).await;
            world.proxy.behave();
        }
        paused
    })
    .await;
}

a_claim_that_is_dropped_in_the_renewal_after_a_long_wait_leaves_nothing(world) {
    world.rival(&[]).await;
    world.proxy.next("PRLOCK.RENEW", Fate::Unheard, 1);
    let began = Instant::now();
    // A wait of more than a sixth of the lifetime, which is long, so that it is not the deadline that frees.
    world.dropped(&Options::new(ms(6000)).wait(ms(20_000)), async || {
        if began.elapsed() > ms(1200) && world.waiters().await == 1 {
            world.release_rival().await;
        }
        world.proxy.struck() == 1
    })
    .await;
}

a_lock_that_is_dropped_in_a_renewal_or_in_its_release_is_freed(world) {
    for fate in [Fate::Lost, Fate::Unanswered, Fate::Unheard, Fate::Silence] {
        for (command, work) in [("PRLOCK.RENEW", 20_000), ("PRLOCK.RELEASE", 0)] {
            let struck = world.proxy.struck();
            world.proxy.next(command, fate, 1);
            let (client, options) = (world.client.clone(), Options::new(ms(3000)).reply(ms(300)));
            let task = tokio::spawn(async move { with_lock(&client, "k", &options, |_| sleep(ms(work))).await });
            until("struck", async || world.proxy.struck() > struck).await;
            let began = Instant::now();
            task.abort();
            world.nothing_is_left().await;
            assert!(began.elapsed() < ms(2000), "not by the deadline: {fate:?}, {command}");
        }
    }
}

a_wait_that_is_dropped_leaves_the_queue(world) {
    world.rival(&[]).await;
    let waiter = world.waiting(&minute().wait(ms(20_000))).await;
    waiter.abort();
    until("it left", async || world.waiters().await == 0).await;
    world.release_rival().await;
    assert_eq!(world.keys().await, 0);
}

a_claim_whose_way_breaks_is_sent_again_and_granted_once(world) {
    for fate in [Fate::Lost, Fate::Unanswered] {
        for wait in [0, 5000] {
            let before = world.proxy.struck();
            let granted = async || world.server.info("prlock", "prlock_claims_granted").await.parse::<i64>().expect("a number");
            let grants = granted().await;
            world.proxy.next("PRLOCK.CLAIM", fate, 2);
            with_lock(&world.client, "k", &minute().wait(ms(wait)), |_| async {
                assert_eq!(world.proxy.struck(), before + 2);
                assert_eq!(granted().await, grants + 1);
            }).await.expect("done");
            assert_eq!(world.keys().await, 0);
        }
    }
}

a_claim_without_an_answer_is_given_up_and_leaves_nothing(world) {
    for fate in [Fate::Lost, Fate::Unanswered, Fate::Silence] {
        world.proxy.next("PRLOCK.CLAIM", fate, 100);
        world.refused(&minute().reply(ms(100)).retry(ms(300)), Code::Connection, "is it running").await;
        world.proxy.behave();
        world.free().await;
    }
}

a_wait_whose_connection_breaks_is_taken_up_again(world) {
    world.rival(&[]).await;
    let waiter = world.waiting(&minute().wait(ms(20_000))).await;
    world.proxy.cut();
    until("it left", async || world.waiters().await == 0).await;
    world.proxy.mend();
    until("it waits again", async || world.waiters().await == 1).await;
    world.release_rival().await;
    assert!(waiter.await.expect("no panic").expect("got it"));
}

the_renewal_after_a_wait_breaks(world) {
    for fate in [Fate::Lost, Fate::Unanswered] {
        world.rival(&[]).await;
        world.proxy.next("PRLOCK.RENEW", fate, 1);
        let waiter = world.waiting(&Options::new(ms(600)).wait(ms(20_000))).await;
        sleep(ms(300)).await;
        world.release_rival().await;
        assert!(waiter.await.expect("no panic").expect("got it"));
        assert_eq!(world.keys().await, 0);
    }
    assert_eq!(world.proxy.struck(), 2);
}

a_renewal_that_breaks_is_no_loss(world) {
    let passing = [Fate::Answer("-LOADING loading\r\n"), Fate::Answer("-MISCONF disk\r\n")];
    for fate in [Fate::Lost, Fate::Unanswered, Fate::Silence].into_iter().chain(passing) {
        with_lock(&world.client, "k", &Options::new(ms(900)), |lock: Lock| {
            let world = &world;
            async move {
                let struck = world.proxy.struck();
                world.proxy.next("PRLOCK.RENEW", fate, 1);
                until("struck", async || world.proxy.struck() > struck).await;
                let before = world.renewals().await;
                until("renewed again", async || world.renewals().await > before).await;
                lock.check().expect("held");
            }
        }).await.expect("not lost");
        assert_eq!(world.keys().await, 0);
    }
}

a_break_of_a_lifetime_is_a_loss_then_and_not_before(world) {
    for silence in [false, true] {
        let began = Instant::now();
        let options = Options::new(ms(400)).reply(ms(300)).retry(ms(0));
        let lost = with_lock(&world.client, "k", &options, |_| async {
            if silence {
                world.proxy.next("PRLOCK.RENEW", Fate::Silence, 100);
            } else {
                world.proxy.cut();
            }
            sleep(ms(20_000)).await;
        });
        let error = lost.await.expect_err("lost");
        assert_eq!(error.code, Code::Lost);
        assert!(error.to_string().contains("lifetime"), "{error}");
        assert!((ms(400)..ms(3000)).contains(&began.elapsed()), "{:?}", began.elapsed());
        world.proxy.mend();
        world.proxy.behave();
        world.free().await;
    }
}

work_that_blocks_its_thread_knows_by_asking(world) {
    let options = Options::new(ms(200)).retry(ms(0));
    let asked = with_lock(&world.client, "k", &options, |lock: Lock| async move {
        std::thread::sleep(ms(250));
        (lock.held(), lock.check().expect_err("lost").to_string())
    });
    let (held, error) = asked.await.expect("the work's own result");
    assert!(!held);
    assert!(error.contains("lifetime"), "{error}");
}

a_release_that_breaks_hides_nothing(world) {
    for fate in [Fate::Lost, Fate::Unanswered, Fate::Silence, Fate::Answer("-ERR trouble\r\n")] {
        let struck = world.proxy.struck();
        world.proxy.next("PRLOCK.RELEASE", fate, 1);
        assert!(world.pass(&Options::new(ms(600)).reply(ms(200))).await.expect("done"));
        assert_eq!(world.proxy.struck(), struck + 1);
        world.free().await;
    }
}

the_end_of_work_without_a_server_is_quick(world) {
    let options = minute().retry(ms(200)).reply(ms(200));
    let cut = with_lock(&world.client, "k", &options, |_| async {
        world.proxy.cut();
        Instant::now()
    });
    assert!(cut.await.expect("done").elapsed() < ms(3000));
}

}
