//! Locks in the forms of earlier versions, and of later ones: the former are read for ever and written in the new form,
//! the latter are refused with a word in the log.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

use crate::short_reads::{MARK, shake_hands};
use crate::support::{
    Conn, Dumper, ENCODINGS, LAST_ENCODING, PATIENCE, Server, Stored, Value, bytes, crc64, int, lock_info, wait_until,
};

/// What Redis 7.0 saved when the first form was the only one: the locks of [`due`], compressed by the server.
const FILE: &[u8] = include_bytes!("first_form.rdb");
/// When they were claimed, Unix time in ms.
const CLAIMED_AT_MS: i64 = 1_700_000_000_000;
const DAY_MS: i64 = 86_400_000;
/// One more than this module knows, and the greatest there can be.
const LATER: [u64; 2] = [LAST_ENCODING + 1, 1_023];
const UNKNOWN: &str = "prlock: a lock of an unknown encoding version";

/// Database, key, deadline (-1 for none) and value of each lock in the file.
fn due() -> [(i64, &'static str, i64, Stored); 3] {
    let fence = CLAIMED_AT_MS as u64 * 1_000;
    let plain = Stored {
        claimed_at_ms: CLAIMED_AT_MS,
        renewed_at_ms: CLAIMED_AT_MS,
        renewals: 0,
        holder: Vec::new(),
        ..Stored::new(fence)
    };
    let hex = Stored {
        fence: fence + 111,
        renewed_at_ms: CLAIMED_AT_MS + 250,
        renewals: 2,
        linger_ms: 5_000,
        token: b"00112233445566778899aabbccddeeff".to_vec(),
        holder: b"host-17.example:4711".to_vec(),
        ..plain.clone()
    };
    let text = Stored { fence: fence + 222, token: b"\x93\x01\xc0\xff token %s\0".to_vec(), ..plain.clone() };
    let forever = Stored {
        fence: fence + 333,
        claimed_at_ms: CLAIMED_AT_MS - 7_000,
        renewed_at_ms: CLAIMED_AT_MS + 60 * DAY_MS,
        renewals: 70_000,
        token: vec![b'a'; 512],
        holder: vec![b'h'; 512],
        ..plain
    };
    [(0, "hex", 2 * CLAIMED_AT_MS + 111, hex), (0, "text", 2 * CLAIMED_AT_MS + 222, text), (3, "forever", -1, forever)]
}

/// All that the server stores of a key.
fn dump(conn: &mut Conn, key: &str) -> Vec<u8> {
    bytes(&conn.ok(("DUMP", key)))
}

/// The locks in a payload or file are of the last encoding version.
fn assert_written_in_the_last_form(bytes: &[u8], dumper: &Dumper) {
    let has = |encoding: u64| bytes.windows(8).any(|part| part == dumper.id(encoding));
    assert!(has(LAST_ENCODING));
    assert!(ENCODINGS.iter().all(|encoding| *encoding == LAST_ENCODING || !has(*encoding)));
}

/// The locks of the file, by what commands show of them.
fn assert_has_all(server: &Server) {
    for (db, key, deadline_ms, stored) in due() {
        let mut conn = server.conn();
        conn.select(db);
        let info = lock_info(&mut conn, key).expect("a lock");
        assert_eq!(int(&info["fence"]), stored.fence as i64);
        assert_eq!(bytes(&info["holder"]), stored.holder);
        assert_eq!(int(&info["renewals"]), i64::from(stored.renewals));
        assert_eq!(int(&info["linger-ms"]), stored.linger_ms);
        assert_eq!(int(&conn.ok(("PEXPIRETIME", key))), deadline_ms);
    }
    server.assert_locks_agree();
    assert_eq!(server.conn().gauge("held"), 3);
    assert!(server.conn().gauge("last_fence") >= due()[2].3.fence as i64);
}

/// The same locks by RESTORE: for a comparison of all their parts, also of those that no command shows.
fn restored() -> Server {
    let server = Server::start();
    for (db, key, deadline_ms, stored) in due() {
        let mut conn = server.conn();
        conn.select(db);
        let dumper = Dumper::new(&mut conn);
        let payload = dumper.payload(LAST_ENCODING, &stored);
        conn.ok(("RESTORE", key, deadline_ms.max(0), payload, "ABSTTL"));
    }
    server
}

#[test]
fn a_file_of_the_first_form_is_loaded_and_saved_in_the_last() {
    let states = restored().lock_states();
    assert_eq!(states.len(), 3);
    let server = Server::start();
    let dumper = Dumper::new(&mut server.conn());
    server.stop();
    let path = server.folder().join("dump.rdb");
    std::fs::write(&path, FILE).expect("write the file");
    assert!(FILE.windows(8).any(|part| part == dumper.id(0)));
    server.restart();
    assert_has_all(&server);
    assert_eq!(server.lock_states(), states);

    server.conn().ok(("SAVE",));
    let saved = std::fs::read(&path).expect("the file");
    assert_written_in_the_last_form(&saved, &dumper);
    assert!(saved.len() < FILE.len());
    server.restart();
    assert_has_all(&server);
    assert_eq!(server.lock_states(), states);
    let replica = server.replica();
    assert_eq!(replica.lock_states(), states);
    for (db, key, _, stored) in due() {
        let mut conn = server.conn();
        conn.select(db);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, &stored.token, "PX", 60_000))), 1);
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, &stored.token, "FENCE", stored.fence))), 1);
    }
}

/// An upgrade: the replicas come first, and get what the older primary still writes.
#[test]
fn a_replica_takes_the_first_form_from_an_older_primary() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let replica = Server::start();
    replica.conn().ok(("REPLICAOF", "127.0.0.1", port));
    let (mut primary, _) = listener.accept().expect("a replica");
    primary.set_read_timeout(Some(PATIENCE)).expect("set the timeout");
    shake_hands(&mut primary);
    for part in [FILE, MARK] {
        primary.write_all(part).expect("send the data set");
    }
    wait_until("the data set to arrive", PATIENCE, || {
        (replica.find_info_field("master_link_status")? == "up").then_some(())
    });
    assert_has_all(&replica);
    assert_eq!(replica.lock_states(), restored().lock_states());
}

#[test]
fn a_payload_of_the_first_form_is_dumped_in_the_last() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let dumper = Dumper::new(&mut conn);
        for (_, key, _, stored) in due() {
            let [first, last] = ENCODINGS.map(|encoding| {
                conn.ok(("RESTORE", key, 60_000, dumper.payload(encoding, &stored), "REPLACE"));
                dump(&mut conn, key)
            });
            assert_written_in_the_last_form(&first, &dumper);
            assert_eq!(first, last, "{key}");
            conn.ok(("RESTORE", key, 60_000, &first, "REPLACE"));
            assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, &stored.token, "PX", 60_000))), 1);
        }
        conn.ok(("FLUSHDB",));
    }
}

/// Never guessed at: an older build says that it can't read what a newer one has written.
#[test]
fn a_later_form_is_refused_with_a_word_in_the_log() {
    let server = Server::start();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    for (number, encoding) in LATER.into_iter().enumerate() {
        for form in ENCODINGS {
            let payload = dumper.sealed(&dumper.object(encoding, &Stored::new(7).form(form)));
            assert!(conn.err(("RESTORE", "k", 60_000, payload)).starts_with("ERR Bad data format"));
        }
        assert_eq!(server.log().matches(UNKNOWN).count(), (number + 1) * ENCODINGS.len());
    }
    assert_eq!(conn.ok(("EXISTS", "k")), Value::Int(0));

    let mut later = FILE[..FILE.len() - 8].to_vec();
    let at = later.windows(8).position(|part| part == dumper.id(0)).expect("a lock");
    later[at..at + 8].copy_from_slice(&dumper.id(LATER[0]));
    let checksum = crc64(&later);
    later.extend(checksum.to_le_bytes());
    server.stop();
    std::fs::write(server.folder().join("dump.rdb"), later).expect("write the file");
    let told = server.log().matches(UNKNOWN).count();
    let failure = server.try_restart_with(|plan| plan).expect_err("no start with locks that it can't read");
    // Its own check of the file's frame finds no fault, so that Redis 7.0 ends with 0.
    assert!(failure.why.contains("exit status"), "{}", failure.why);
    assert_eq!(failure.log.matches(UNKNOWN).count(), told + 1);
}
