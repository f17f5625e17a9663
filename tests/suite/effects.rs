//! What reaches replicas and the AOF: every change once, as one unit, with the state as it is; refusals nothing. CASES 41,
//! 47, 64.

use crate::support::{Conn, NOISE, Server, Stored, Value, Witness, cmd, int};

/// Runs a line; its reply is of no matter, but it is no error.
fn run(conn: &mut Conn, line: &str) -> Value {
    conn.ok(cmd(line))
}

#[track_caller]
fn expect(witness: &mut Witness<'_>, conn: &mut Conn, line: &str, commands: &[&str]) {
    run(conn, line);
    let (seen, _) = witness.seen();
    assert_eq!(seen, commands, "{line}");
}

#[test]
fn each_change_is_replicated_once_and_each_refusal_not_at_all() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let mut witness = server.witness();
        let changes: &[(&str, &[&str])] = &[
            ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", &["PRLOCK.APPLY k"]),
            ("PRLOCK.CLAIM k PX 70000 TOKEN t", &["PRLOCK.APPLY k"]),
            ("PRLOCK.RENEW k t PX 50000", &["PRLOCK.APPLY k"]),
            ("PRLOCK.CLAIM k PX 60000 TOKEN u STEAL", &["PRLOCK.APPLY k"]),
            ("PRLOCK.RELEASE k u", &["DEL k"]),
            ("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h", &["PRLOCK.APPLY k"]),
            ("PRLOCK.CLAIM k2 PX 60000 HOLDER h", &["PRLOCK.APPLY k2"]),
            ("PRLOCK.CLAIM k3 PX 60000 HOLDER h LINGER 0", &["PRLOCK.APPLY k3"]),
            ("PRLOCK.REVOKE h", &["MULTI", "DEL k", "DEL k2", "DEL k3", "EXEC"]),
            ("SET s token PX 60000", &["SET s"]),
            ("PRLOCK.RENEW s token PX 50000", &["PEXPIREAT s"]),
            ("PRLOCK.RELEASE s token", &["DEL s"]),
            ("SET s token PX 60000", &["SET s"]),
            ("PRLOCK.CLAIM s PX 60000 TOKEN t STEAL", &["PRLOCK.APPLY s"]),
            ("PRLOCK.RELEASE s t", &["DEL s"]),
        ];
        for (line, commands) in changes {
            expect(&mut witness, &mut conn, line, commands);
        }
        run(&mut conn, "PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
        run(&mut conn, "SET s token");
        run(&mut conn, "RPUSH list item");
        witness.seen();
        for line in [
            "PRLOCK.CLAIM k PX 60000",
            "PRLOCK.CLAIM k PX 60000 TOKEN u STEALIF 5",
            "PRLOCK.CLAIM s PX 60000",
            "PRLOCK.CLAIM s PX 60000 STEALIF 5",
            "PRLOCK.CLAIM list PX 60000 STEAL",
            "PRLOCK.RENEW k u PX 60000",
            "PRLOCK.RENEW k t PX 60000 FENCE 5",
            "PRLOCK.RENEW s other PX 60000",
            "PRLOCK.RENEW nothing t PX 60000",
            "PRLOCK.RELEASE k u",
            "PRLOCK.RELEASE k t FENCE 5",
            "PRLOCK.RELEASE s other",
            "PRLOCK.RELEASE nothing t",
            "PRLOCK.REVOKE nobody",
            "PRLOCK.REVOKE ''",
            "PRLOCK.INFO k",
            "PRLOCK.LIST",
            "PRLOCK.CLAIM k PX 0 STEAL",
            "PRLOCK.CLAIM k PX 60000 STEAL STEAL",
            "PRLOCK.RENEW k t PX 99999999999",
            "PRLOCK.APPLY k x",
        ] {
            let _ = conn.call(cmd(line));
            witness.assert_nothing(line);
        }
        run(&mut conn, "FLUSHALL");
    }
}

/// The stream carries the state: the same token, holder, fence, deadline and claim time.
#[test]
fn the_stream_carries_the_whole_state() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let mut stream = server.replication_stream();
        let fence = conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h LINGER 7").fence;
        let deadline = int(&conn.ok(("PEXPIRETIME", "k")));
        let claim = stream.take_without(NOISE, 1, crate::support::PATIENCE).remove(0);
        assert_eq!(claim.len(), 3);
        let claimed = Stored::read(&claim[2]);
        assert_eq!((claimed.fence as i64, claimed.expires_at_ms, claimed.linger_ms), (fence, deadline, 7));
        assert_eq!((&*claimed.token, &*claimed.holder, claimed.renewals), (&b"t"[..], &b"h"[..], 0));
        assert_eq!(claimed.claimed_at_ms, deadline - 60_000);

        run(&mut conn, "PRLOCK.RENEW k t PX 50000");
        let deadline = int(&conn.ok(("PEXPIRETIME", "k")));
        let renewal = stream.take_without(NOISE, 1, crate::support::PATIENCE).remove(0);
        let renewed = Stored::read(&renewal[2]);
        assert_eq!((renewed.fence as i64, renewed.expires_at_ms, renewed.renewals), (fence, deadline, 1));
        assert_eq!(renewed.claimed_at_ms, claimed.claimed_at_ms);
        assert_eq!(renewed.renewed_at_ms, deadline - 50_000);
        run(&mut conn, "FLUSHALL");
    }
}

/// CASES 47: the order of execution, in transactions, scripts and functions.
#[test]
fn transactions_and_scripts_are_one_unit_in_their_order() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let mut witness = server.witness();
        run(&mut conn, "MULTI");
        run(&mut conn, "PRLOCK.CLAIM k PX 60000 TOKEN t");
        run(&mut conn, "PRLOCK.CLAIM k PX 60000 TOKEN u");
        run(&mut conn, "PRLOCK.RENEW k t PX 60000");
        run(&mut conn, "DEL k");
        run(&mut conn, "PRLOCK.CLAIM k PX 60000 TOKEN u");
        let order = ["MULTI", "PRLOCK.APPLY k", "PRLOCK.APPLY k", "DEL k", "PRLOCK.APPLY k", "EXEC"];
        expect(&mut witness, &mut conn, "EXEC", &order);
        // Refusals in a transaction are nothing at all.
        run(&mut conn, "MULTI");
        run(&mut conn, "PRLOCK.CLAIM k PX 60000 TOKEN t");
        run(&mut conn, "PRLOCK.RELEASE k t");
        expect(&mut witness, &mut conn, "EXEC", &[]);

        let script = "redis.call('PRLOCK.RELEASE', KEYS[1], 'u')
            local granted = redis.call('PRLOCK.CLAIM', KEYS[1], 'PX', 60000, 'TOKEN', 't')
            redis.call('PRLOCK.RENEW', KEYS[1], 't', 'PX', 50000)
            return granted[2]";
        conn.ok(("EVAL", script, 1, "k"));
        let (seen, _) = witness.seen();
        assert_eq!(seen, ["MULTI", "DEL k", "PRLOCK.APPLY k", "PRLOCK.APPLY k", "EXEC"]);

        let library = "#!lua name=l\nredis.register_function('take', function(keys, args)
            return redis.call('PRLOCK.CLAIM', keys[1], 'PX', 60000, 'TOKEN', args[1], 'STEAL') end)";
        conn.ok(("FUNCTION", "LOAD", "REPLACE", library));
        witness.seen();
        conn.ok(("FCALL", "take", 1, "k", "v"));
        assert_eq!(witness.seen().0, ["PRLOCK.APPLY k"]);
        run(&mut conn, "FLUSHALL");
    }
}

/// An expiry found by a claim goes before the claim, and CASES 64: nothing but the argument is touched.
#[test]
fn an_expiry_goes_before_the_claim_that_found_it() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        conn.ok(("DEBUG", "SET-ACTIVE-EXPIRE", 0));
        conn.ok(("SET", "bystander", "x"));
        conn.claim_px("k", 5);
        // A look at the key itself could be the one that finds it past its deadline.
        let latest_ms = conn.time_ms() + 5;
        conn.wait_past(latest_ms);
        let mut witness = server.witness();
        conn.claim("k");
        let (seen, _) = witness.seen();
        let names: Vec<&str> = seen.iter().map(|line| line.as_str()).filter(|line| line.contains(' ')).collect();
        assert!(names == ["DEL k", "PRLOCK.APPLY k"] || names == ["UNLINK k", "PRLOCK.APPLY k"], "{seen:?}");
        assert_eq!(seen.len(), 4, "in one unit: {seen:?}");
        assert_eq!(conn.ok(("DBSIZE",)), Value::Int(2));
        assert_eq!(conn.ok(("GET", "bystander")), Value::BulkString(b"x".to_vec()));
        run(&mut conn, "FLUSHALL");
    }
}
