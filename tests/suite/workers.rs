//! The story of two workers from end to end, each with its own connection and its own thread.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Conn, Server, cmd, grant, int};

/// Long enough that a machine that stands still for a second costs nobody the lock.
const TTL_MS: i64 = 2_400;
/// More than two deadlines.
const WORK: Duration = Duration::from_millis(5_400);

struct Outcome {
    fence: i64,
    granted_at: Instant,
}

/// The second worker: it waits, works for a moment, and releases.
fn rival(mut conn: Conn) -> Outcome {
    let reply = conn.ok(cmd(&format!("PRLOCK.CLAIM job PX {TTL_MS} TOKEN second HOLDER second BLOCK 0")));
    let granted_at = Instant::now();
    let fence = grant(&reply).expect("a grant").fence;
    assert_eq!(conn.int("PRLOCK.RELEASE job second"), 1);
    Outcome { fence, granted_at }
}

/// The first renews at a third of the deadline while its work outlasts it: the rival has the lock after the release, and
/// not before.
#[test]
fn who_renews_in_time_is_left_to_work() {
    let server = Server::start();
    let (mut first, second) = (server.conn(), server.conn());
    let own = first.granted(&format!("PRLOCK.CLAIM job PX {TTL_MS} TOKEN first HOLDER first"));
    let (done, is_done) = mpsc::channel::<()>();
    let mut renewing = server.conn();
    let renewals = thread::spawn(move || {
        let mut lost = 0;
        // The renewer of a real worker: its own connection, a third of the deadline apart.
        while is_done.recv_timeout(Duration::from_millis(TTL_MS as u64 / 3)).is_err() {
            lost += i64::from(int(&renewing.ok(("PRLOCK.RENEW", "job", "first", "PX", TTL_MS))) == 0);
        }
        lost
    });
    let waits = thread::spawn(move || rival(second));
    thread::sleep(WORK);
    done.send(()).expect("the renewer");
    assert_eq!(renewals.join().expect("the renewer"), 0, "the lock was lost");
    let released_at = Instant::now();
    assert_eq!(first.int("PRLOCK.RELEASE job first"), 1);
    let outcome = waits.join().expect("the rival");
    assert!(outcome.granted_at >= released_at, "granted before the release");
    assert!(outcome.fence > own.fence);
    assert_eq!((server.stat("expired"), server.stat("claims_refused")), (0, 0));
    assert_eq!(first.int("DBSIZE"), 0);
}

/// The same without renewal: the rival is granted at the deadline, and the first learns that it has lost the lock.
#[test]
fn who_does_not_renew_loses_the_lock_at_its_deadline() {
    let server = Server::start();
    let (mut first, second) = (server.conn(), server.conn());
    let own = first.granted(&format!("PRLOCK.CLAIM job PX {TTL_MS} TOKEN first HOLDER first"));
    let deadline_ms = first.int("PEXPIRETIME job");
    let outcome = thread::spawn(move || rival(second)).join().expect("the rival");
    // Redis 8 takes a deadline for past in its very ms.
    assert!(outcome.fence / 1_000 >= deadline_ms, "granted before the deadline");
    // A resource that keeps the greatest fence it has seen now refuses the first worker.
    assert!(outcome.fence > own.fence);
    assert_eq!(int(&first.ok(("PRLOCK.RENEW", "job", "first", "PX", TTL_MS))), 0);
    assert_eq!(first.int("PRLOCK.RELEASE job first"), 0);
    assert_eq!(server.stat("claims_after_wait"), 1);
    assert_eq!(first.int("DBSIZE"), 0);
}
