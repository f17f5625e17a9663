//! What meets in one turn of the server's event loop: a release, the end of a wait, and the death of a client.

use std::time::Duration;

use crate::support::{Grant, PATIENCE, Raw, Server, Value, Waiter, cmd, grant, int, seeded_rng, wait_until};

/// Sends lines at once and takes all replies.
fn send_and_take(server: &Server, lines: &[String]) {
    let mut raw = server.raw();
    raw.send_lines(lines);
    for line in lines {
        raw.reply(PATIENCE).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// What a waiter was told, which must be one thing and just one.
fn told(waiter: &mut Waiter) -> Result<Option<Grant>, String> {
    let reply = waiter.reply(PATIENCE).map(|reply| grant(&reply));
    waiter.assert_no_more_replies();
    reply
}

/// CASES 34, in the very moment of the grant. Whoever was told no holds nothing: the next has the lock.
#[test]
fn unblocked_in_the_moment_of_the_grant_means_one_reply() {
    let server = Server::start();
    let mut conn = server.conn();
    for ends in ["PRLOCK.RELEASE k a", "DEL k", "PEXPIRE k 0", "FLUSHDB", "PRLOCK.REVOKE h"] {
        for how in ["TIMEOUT", "ERROR"] {
            for unblock_first in [false, true] {
                conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a HOLDER h");
                let mut first = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN first BLOCK 0");
                let mut second = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN second BLOCK 0");
                let mut lines = [ends.to_owned(), format!("CLIENT UNBLOCK {} {how}", first.id)];
                if unblock_first {
                    lines.reverse();
                }
                send_and_take(&server, &lines);
                let what = format!("{lines:?}");
                match told(&mut first) {
                    Ok(Some(grant)) => {
                        assert!(!unblock_first, "{what}");
                        second.assert_waiting();
                        assert_eq!(conn.lock_number("k", "fence"), grant.fence, "{what}");
                        assert_eq!(conn.int("PRLOCK.RELEASE k first"), 1);
                    }
                    Ok(None) => assert_eq!(how, "TIMEOUT", "{what}"),
                    Err(error) => {
                        assert_eq!(how, "ERROR", "{what}");
                        assert!(error.starts_with("UNBLOCKED "), "{what}: {error}");
                    }
                }
                let grant = told(&mut second).expect("a grant").expect("a grant");
                assert_eq!(conn.lock_number("k", "fence"), grant.fence, "{what}");
                assert_eq!(conn.int("PRLOCK.RELEASE k second"), 1);
                server.wait_nobody_waits();
            }
        }
    }
}

/// A time-out and CLIENT UNBLOCK in one turn.
#[test]
fn unblocked_in_the_moment_of_the_time_out_means_one_reply() {
    let server = Server::start();
    server.conn().granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    for how in ["TIMEOUT", "ERROR"] {
        for _ in 0..20 {
            let mut waiter = server.background(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 5"));
            let mut raw = server.raw();
            // The server sleeps over the time-out, and then finds both at once.
            raw.send_lines(["DEBUG SLEEP 0.008".to_owned(), format!("CLIENT UNBLOCK {} {how}", waiter.id)]);
            assert!(!matches!(told(&mut waiter), Ok(Some(_))));
        }
    }
    server.wait_nobody_waits();
    assert_eq!(server.stat("claims_after_wait"), 0);
}

/// A waiter killed before the grant, between grant and reply, and after it. PITFALLS 15.4.
#[test]
fn no_lock_stays_with_a_waiter_killed_at_any_moment() {
    let server = Server::start();
    let mut conn = server.conn();
    // Not FLUSHDB: Redis 8 answers the waiter before it takes the next command of the pipeline.
    for ends in ["PRLOCK.RELEASE k a", "DEL k", "PEXPIRE k 0"] {
        for kill_first in [false, true] {
            conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
            let dead = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN dead BLOCK 0");
            let mut next = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN next BLOCK 0");
            let mut lines = [ends.to_owned(), format!("CLIENT KILL ID {}", dead.id)];
            if kill_first {
                lines.reverse();
            }
            send_and_take(&server, &lines);
            assert_eq!(next.granted().token, b"next", "{lines:?}");
            assert_eq!(conn.int("PRLOCK.RELEASE k next"), 1);
        }
    }
    // After the reply: by LINGER, else at the deadline.
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let mut dead = server.waits("PRLOCK.CLAIM k PX 60000 LINGER 0 BLOCK 0");
    let mut next = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN next BLOCK 0");
    assert_eq!(conn.int("PRLOCK.RELEASE k a"), 1);
    dead.granted();
    dead.disconnect();
    next.granted();
    assert_eq!(conn.int("PRLOCK.RELEASE k next"), 1);
    server.wait_nobody_waits();
}

/// The last waiter is killed between grant and reply, and nobody is next: the key is free, and no helper key is left.
#[test]
fn a_grant_to_the_dead_is_undone_and_seen_as_such() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
    let dead = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN dead BLOCK 0");
    let mut witness = server.witness();
    send_and_take(&server, &["PRLOCK.RELEASE k a".to_owned(), format!("CLIENT KILL ID {}", dead.id)]);
    wait_until("the lock to be free", PATIENCE, || (conn.int("EXISTS k") == 0).then_some(()));
    let (commands, events) = witness.seen();
    assert_eq!(commands, ["PRLOCK.APPLY k", "DEL k"]);
    assert_eq!(events, ["prlock.release k", "prlock.claim k", "prlock.release k", "del k"]);
    assert_eq!(conn.int("DBSIZE"), 0);
}

/// The lock of a grant that nobody heard of is freed wherever it went in the same turn, before the kill or behind it.
#[test]
fn a_grant_to_the_dead_is_undone_wherever_its_lock_went() {
    let server = Server::start();
    let mut conn = server.conn();
    for moves in ["RENAME k k2", "RENAME k k2;RENAME k2 k3", "MOVE k 5", "SWAPDB 0 5", "RENAME k k2;SWAPDB 0 5"] {
        for kills_first in [false, true] {
            conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
            let dead = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN dead BLOCK 0");
            let kill = format!("CLIENT KILL ID {}", dead.id);
            let moves = moves.split(';').map(str::to_owned);
            let lines: Vec<String> = if kills_first {
                ["PRLOCK.RELEASE k a".to_owned(), kill].into_iter().chain(moves).collect()
            } else {
                ["PRLOCK.RELEASE k a".to_owned()].into_iter().chain(moves).chain([kill]).collect()
            };
            send_and_take(&server, &lines);
            wait_until("the lock to be freed", PATIENCE, || (server.stat("held") == 0).then_some(()));
            for db in ["db0", "db5"] {
                assert_eq!(server.find_info_field(db), None, "{lines:?}");
            }
        }
    }
}

/// The undo of a grant leaves alone what was claimed again, renewed, or stolen meanwhile, all in one turn.
#[test]
fn the_undo_spares_what_somebody_knows_of() {
    let server = Server::start();
    let mut conn = server.conn();
    for (line, owner) in [
        ("PRLOCK.CLAIM k PX 60000 TOKEN dead", "dead"),
        ("PRLOCK.RENEW k dead PX 60000", "dead"),
        ("PRLOCK.CLAIM k PX 60000 TOKEN thief STEAL", "thief"),
    ] {
        for how in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
            conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
            let dead = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN dead BLOCK 0");
            let mut last = format!("{how} {}", dead.id);
            if how == "CLIENT UNBLOCK" {
                last.push_str(" ERROR");
            }
            send_and_take(&server, &["PRLOCK.RELEASE k a".to_owned(), line.to_owned(), last]);
            server.wait_nobody_waits();
            // A few turns of the timer later it is still there.
            server.background(cmd("PRLOCK.CLAIM k PX 1000 BLOCK 60")).nulled();
            assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", "k", owner))), 1, "{line}, {how}");
        }
    }
}

/// The owner got its lock by another call than the wait that is answered with it: when the one who waited is killed before
/// its reply, the owner still knows of the lock, and keeps it.
#[test]
fn who_is_killed_before_its_reply_takes_nothing_from_the_same_tokens_owner() {
    let server = Server::start();
    let mut conn = server.conn();
    for how in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let twin = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let mut last = format!("{how} {}", twin.id);
        if how == "CLIENT UNBLOCK" {
            last.push_str(" ERROR");
        }
        // The newcomer in the middle is refused, and makes the module look at who waits for the key.
        let lines = ["PRLOCK.CLAIM k PX 60000 TOKEN w STEAL", "PRLOCK.CLAIM k PX 60000 TOKEN x", &last];
        send_and_take(&server, &lines.map(str::to_owned));
        server.wait_nobody_waits();
        // A few turns of the timer later it is still there.
        server.background(cmd("PRLOCK.CLAIM k PX 1000 BLOCK 60")).nulled();
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1, "{how}");
    }
}

/// Release against time-out within the same millisecond, thousands of times.
#[test]
fn release_against_time_out_gives_one_reply_and_one_truth() {
    use rand::RngExt as _;
    const ROUNDS: usize = 50;
    const WAITERS: usize = 50;
    let server = Server::start();
    let mut conn = server.conn();
    let mut rng = seeded_rng();
    let mut raws: Vec<Raw> = (0..WAITERS).map(|_| server.raw()).collect();
    let (mut grants, mut nulls) = (0, 0);
    for round in 0..ROUNDS {
        for number in 0..WAITERS {
            conn.granted(&format!("PRLOCK.CLAIM k{number} PX 60000 TOKEN a{round}"));
        }
        let block_ms = rng.random_range(3..12);
        for (number, raw) in raws.iter_mut().enumerate() {
            raw.send_command(cmd(&format!("PRLOCK.CLAIM k{number} PX 60000 TOKEN w{round} BLOCK {block_ms}")));
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..block_ms * 1_200)));
        let lines: Vec<String> = (0..WAITERS).map(|n| format!("PRLOCK.RELEASE k{n} a{round}")).collect();
        send_and_take(&server, &lines);
        for (number, raw) in raws.iter_mut().enumerate() {
            let reply = raw.reply(PATIENCE).expect("a reply");
            let owns = int(&conn.ok(("PRLOCK.RELEASE", format!("k{number}"), format!("w{round}")))) == 1;
            match grant(&reply) {
                Some(_) => grants += 1,
                None => nulls += 1,
            }
            assert_eq!(owns, reply != Value::Nil, "round {round}, waiter {number}, BLOCK {block_ms}");
        }
        assert_eq!(conn.int("DBSIZE"), 0);
    }
    for raw in &mut raws {
        raw.assert_silent();
    }
    assert_eq!(grants + nulls, ROUNDS * WAITERS);
    assert!(grants > 0 && nulls > 0, "{grants} granted, {nulls} timed out: no race");
    server.wait_nobody_waits();
}

/// The server becomes a replica in the very turn of the grant.
#[test]
fn whoever_waits_when_the_server_becomes_a_replica_gets_one_reply() {
    let server = Server::start();
    let mut conn = server.conn();
    for ends in ["PRLOCK.RELEASE k a", "DEL k", "PING"] {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        send_and_take(&server, &[ends.to_owned(), "REPLICAOF 127.0.0.1 1".to_owned()]);
        match waiter.reply(PATIENCE) {
            Ok(reply) => assert!(ends != "PING" && grant(&reply).is_some(), "{reply:?}"),
            Err(error) => assert!(error.starts_with("UNBLOCKED "), "{error}"),
        }
        conn = server.conn();
        conn.ok(("REPLICAOF", "NO", "ONE"));
        conn.ok(("FLUSHALL",));
        server.wait_nobody_waits();
    }
}

/// What a client has sent behind a wait or during a pause, Redis 7.0 runs after it has said that it is about to sleep. Whom
/// that grants a lock hears of it as soon as the releaser hears, and not when something else wakes the server.
#[test]
fn a_grant_by_a_command_that_was_held_back_is_told_at_once() {
    let server = Server::start();
    let mut conn = server.conn();
    let mut is_late = |is_paused: bool| {
        conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN a");
        let mut waiter = server.waits("PRLOCK.CLAIM k PX 60000 TOKEN w BLOCK 0");
        let mut releaser = if is_paused {
            conn.ok(cmd("CLIENT PAUSE 60000 WRITE"));
            server.waiter(cmd("PRLOCK.RELEASE k a"))
        } else {
            let mut releaser = server.waiter(cmd("BLPOP list 0"));
            releaser.raw().send_command(cmd("PRLOCK.RELEASE k a"));
            releaser
        };
        conn.ok(cmd(if is_paused { "CLIENT UNPAUSE" } else { "RPUSH list x" }));
        if !is_paused {
            releaser.reply(PATIENCE).expect("the element");
        }
        assert_eq!(releaser.reply(PATIENCE), Ok(Value::Int(1)));
        let reply = waiter.reply_within(Duration::from_millis(3));
        let is_late = reply.is_none();
        let reply = reply.unwrap_or_else(|| waiter.reply(PATIENCE)).expect("a grant");
        assert!(grant(&reply).is_some());
        assert_eq!(conn.int("PRLOCK.RELEASE k w"), 1);
        is_late
    };
    for is_paused in [true, false] {
        // A busy machine holds some up, in some tries most; what comes late by its nature does so in every try.
        let tries: Vec<usize> = (0..5).map(|_| (0..10).filter(|_| is_late(is_paused)).count()).collect();
        assert!(tries.iter().any(|late| *late < 2), "late in {tries:?} of 10, with a pause: {is_paused}");
    }
}
