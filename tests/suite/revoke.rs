//! PRLOCK.REVOKE: what an earlier life of a worker left behind goes, and nobody else's.

use crate::support::{Conn, PATIENCE, Server, Value, cmd, grant};

/// CASES 24: X and Y hold three locks each, one of X's was stolen by Z; X's clean-up frees its two.
#[test]
fn a_clean_up_frees_its_own_and_no_siblings() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        for holder in ["X", "Y"] {
            for number in 0..3 {
                conn.granted(&format!("PRLOCK.CLAIM {holder}{number} PX 60000 HOLDER {holder} TOKEN {holder}"));
            }
        }
        conn.granted("PRLOCK.CLAIM X1 PX 60000 HOLDER Z TOKEN z STEAL");
        assert_eq!(conn.int("PRLOCK.REVOKE X"), 2);
        assert_eq!(conn.listed(), ["X1", "Y0", "Y1", "Y2"]);
        assert_eq!(conn.int("PRLOCK.REVOKE X"), 0);
        for key in ["X0", "X1", "X2"] {
            assert_eq!(conn.int(&format!("PRLOCK.RENEW {key} X PX 60000")), 0, "{key}");
        }
        assert_eq!(conn.int("PRLOCK.RENEW X1 z PX 60000"), 1);
        // The other database's locks of the same holders are not of this one.
        let other = if db == 0 { 3 } else { 0 };
        let mut elsewhere = server.conn_with(Conn::resp2().set_db(other));
        assert_eq!(elsewhere.int("PRLOCK.REVOKE Y"), if other == 0 { 3 } else { 0 });
    }
}

/// CASES 29: keys that only look like locks are never listed and never touched.
#[test]
fn plain_strings_are_never_revoked_or_listed() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("SET pr-actuation-lock:x foo"));
    conn.ok(cmd("SET foo X PX 60000"));
    conn.ok(cmd("HSET prlock holder X token t"));
    conn.granted("PRLOCK.CLAIM real PX 60000 HOLDER X");
    assert_eq!(conn.listed(), ["real"]);
    assert_eq!(conn.int("PRLOCK.REVOKE X"), 1);
    assert_eq!(conn.int("PRLOCK.REVOKE foo"), 0);
    assert_eq!(conn.int("EXISTS pr-actuation-lock:x foo prlock"), 3);
}

/// SPEC: each freed lock goes to its next waiter, and one that waits under the same label keeps what it is given.
#[test]
fn a_revoked_lock_goes_to_its_next_waiter() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.granted("PRLOCK.CLAIM a PX 60000 HOLDER X TOKEN old");
    conn.granted("PRLOCK.CLAIM b PX 60000 HOLDER X TOKEN old");
    let mut sibling = server.waiter(cmd("PRLOCK.CLAIM a PX 60000 HOLDER Y TOKEN y BLOCK 0"));
    let mut next_life = server.waiter(cmd("PRLOCK.CLAIM b PX 60000 HOLDER X TOKEN new BLOCK 0"));
    assert_eq!(conn.int("PRLOCK.REVOKE X"), 2);
    for (waiter, token) in [(&mut sibling, b"y".to_vec()), (&mut next_life, b"new".to_vec())] {
        assert_eq!(grant(&waiter.reply(PATIENCE).expect("a reply")).expect("a grant").token, token);
    }
    assert_eq!((conn.lock_holder("a"), conn.lock_holder("b")), ("Y".to_owned(), "X".to_owned()));
    assert_eq!(conn.int("PRLOCK.RENEW b old PX 60000"), 0);
}

/// A lock past its deadline is nobody's: it is not counted.
#[test]
fn lapsed_locks_are_not_revoked() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.ok(cmd("DEBUG SET-ACTIVE-EXPIRE 0"));
    conn.granted("PRLOCK.CLAIM lapsed PX 1 HOLDER X");
    conn.granted("PRLOCK.CLAIM held PX 60000 HOLDER X");
    let at_ms = conn.time_ms();
    conn.wait_past(at_ms + 1);
    assert_eq!(conn.int("PRLOCK.REVOKE X"), 1);
    assert_eq!(conn.ok(("PRLOCK.INFO", "lapsed")), Value::Nil);
}
