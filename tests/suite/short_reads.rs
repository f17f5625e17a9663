//! A primary that breaks off: a replica that loads straight from the socket meets the end of the data at every byte.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::{PATIENCE, Server, wait_until};

/// What ends a data set that is sent without its length.
pub const MARK: &[u8; 40] = b"0123456789012345678901234567890123456789";

/// Plays a primary on this connection up to the start of the data set.
pub fn shake_hands(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut answered = 0;
    loop {
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk).expect("a replica that speaks");
        assert!(length > 0, "the replica has left the handshake: {}", seen.escape_ascii());
        seen.extend_from_slice(&chunk[..length]);
        // Each of the replica's commands is one array.
        let text = String::from_utf8_lossy(&seen).to_uppercase();
        let commands: Vec<&str> = text.split('*').skip(1).collect();
        for command in &commands[answered..] {
            answered += 1;
            let reply: Vec<u8> = if command.contains("PSYNC\r\n") {
                let mut reply = b"+FULLRESYNC ".to_vec();
                reply.extend([b'a'; 40]);
                reply.extend(b" 0\r\n$EOF:");
                reply.extend(MARK);
                reply.extend(b"\r\n");
                reply
            } else if command.contains("PING") {
                b"+PONG\r\n".to_vec()
            } else {
                b"+OK\r\n".to_vec()
            };
            stream.write_all(&reply).expect("answer the replica");
            if command.contains("PSYNC\r\n") {
                return;
            }
        }
    }
}

/// The server tries again at once when a load breaks off, so this takes one replica through every length.
#[test]
fn a_data_set_cut_at_every_byte_is_refused_and_the_whole_one_loads() {
    let donor = Server::start();
    let mut conn = donor.conn();
    for db in [0, 3] {
        conn.select(db);
        conn.claim("lock");
        conn.ok(("PRLOCK.CLAIM", "lingers", "PX", 60_000, "TOKEN", "t", "LINGER", 5_000));
    }
    let due = donor.lock_states();
    assert_eq!(due.len(), 4);
    let rdb = donor.replication_stream().rdb;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let replica = Server::builder().config("repl-diskless-load", "on-empty-db").start();
    // A lock of its own, gone with the first load that begins.
    replica.conn().claim("own");
    replica.conn().ok(("DEL", "own"));

    let primary = std::thread::spawn(move || {
        let mut last = None;
        for cut in 0..=rdb.len() {
            let (mut stream, _) = listener.accept().expect("a replica");
            stream.set_read_timeout(Some(PATIENCE)).expect("set the timeout");
            shake_hands(&mut stream);
            let _ = stream.write_all(&rdb[..cut]);
            if cut == rdb.len() {
                stream.write_all(MARK).expect("send the end");
                last = Some(stream);
                break;
            }
            // It may have seen enough already, and be gone.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            // Until the replica has given up this attempt.
            let mut rest = [0; 64];
            while stream.read(&mut rest).is_ok_and(|length| length > 0) {}
        }
        last
    });
    replica.conn().ok(("REPLICAOF", "127.0.0.1", port));
    wait_until("the whole data set to arrive", Duration::from_secs(120), || {
        if primary.is_finished() && replica.find_info_field("master_link_status")? == "up" {
            return Some(());
        }
        let mut conn = replica.conn();
        // Loading or empty: an answer in any case.
        let _ = conn.call(("PRLOCK.LIST",));
        None
    });
    let _link = primary.join().expect("no failure").expect("the last connection");
    assert!(replica.log().matches("Full resync from").count() > 100, "an attempt for each length");
    assert_eq!(replica.lock_states(), due);
    replica.assert_locks_agree();
    assert_eq!(replica.conn().gauge("held"), 4);
}
