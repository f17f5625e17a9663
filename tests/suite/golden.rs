//! Every reply byte by byte, in RESP2 as ioredis speaks it and in RESP3 as node-redis and redis-py do. CASES 59.

use crate::support::{PATIENCE, Raw, Server, cmd, int, items, text};

/// A connection in protocol 2 or 3.
fn connect(server: &Server, protocol: u8) -> Raw {
    let mut raw = server.raw();
    raw.call(("HELLO", protocol)).expect("HELLO");
    raw
}

#[track_caller]
fn reply(raw: &mut Raw, line: &str) -> String {
    raw.send_command(cmd(line));
    String::from_utf8(raw.reply_bytes(PATIENCE)).expect("ASCII")
}

/// The numbers behind `:` that a clock decides are written as `:N`, in the order of PRLOCK.INFO's fields.
fn without_times(reply: &str) -> String {
    let mut lines: Vec<&str> = reply.split("\r\n").collect();
    for index in 0..lines.len() {
        if matches!(lines[index], "fence" | "ttl-ms" | "held-ms" | "idle-ms") {
            assert!(lines[index + 1].starts_with(':') && !lines[index + 1].starts_with(":-"), "{reply}");
            lines[index + 1] = ":N";
        }
    }
    lines.join("\r\n")
}

#[test]
fn replies_byte_by_byte() {
    for protocol in [2, 3] {
        let server = Server::start();
        let mut raw = connect(&server, protocol);
        let (null, map) = if protocol == 2 { ("$-1\r\n", "*18\r\n") } else { ("_\r\n", "%9\r\n") };
        let info = format!(
            "{map}$3\r\nkey\r\n$1\r\nk\r\n$6\r\nholder\r\n$1\r\nh\r\n$5\r\nfence\r\n:N\r\n$6\r\nttl-ms\r\n:N\r\n\
             $7\r\nheld-ms\r\n:N\r\n$7\r\nidle-ms\r\n:N\r\n$8\r\nrenewals\r\n:1\r\n$9\r\nlinger-ms\r\n:-1\r\n\
             $7\r\nwaiters\r\n:0\r\n"
        );

        assert_eq!(reply(&mut raw, "PRLOCK.INFO k"), null);
        assert_eq!(reply(&mut raw, "PRLOCK.LIST"), "*0\r\n");
        assert_eq!(reply(&mut raw, "PRLOCK.REVOKE h"), ":0\r\n");
        assert_eq!(reply(&mut raw, "PRLOCK.RENEW k t PX 1000"), ":0\r\n");
        assert_eq!(reply(&mut raw, "PRLOCK.RELEASE k t"), ":0\r\n");

        let granted = reply(&mut raw, "PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h");
        let fence = server.info_number("prlock_last_fence");
        assert_eq!(granted, format!("*2\r\n$1\r\nt\r\n:{fence}\r\n"));
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 60000 TOKEN t HOLDER h BLOCK 0"), granted);
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 60000"), null);
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 60000 BLOCK 1"), null, "the time is up");
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 60000 STEALIF 1"), null);
        assert_eq!(reply(&mut raw, "PRLOCK.RENEW k t PX 60000"), ":1\r\n");
        assert_eq!(without_times(&reply(&mut raw, "PRLOCK.INFO k")), info);
        assert_eq!(without_times(&reply(&mut raw, "PRLOCK.LIST")), format!("*1\r\n{info}"));

        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k"), "-ERR wrong number of arguments for 'PRLOCK.CLAIM' command\r\n");
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 1000 NX"), "-ERR syntax error\r\n");
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 1.5"), "-ERR value is not an integer or out of range\r\n");
        assert_eq!(reply(&mut raw, "PRLOCK.CLAIM k PX 0"), "-ERR invalid expire time in 'prlock.claim' command\r\n");

        assert_eq!(reply(&mut raw, "MULTI"), "+OK\r\n");
        for line in ["PRLOCK.CLAIM k PX 1000", "PRLOCK.RENEW k t PX 60000", "PRLOCK.RELEASE k t", "PRLOCK.INFO k"] {
            assert_eq!(reply(&mut raw, line), "+QUEUED\r\n");
        }
        assert_eq!(reply(&mut raw, "EXEC"), format!("*4\r\n{null}:1\r\n:1\r\n{null}"));

        reply(&mut raw, "PRLOCK.CLAIM a PX 60000 HOLDER h");
        reply(&mut raw, "PRLOCK.CLAIM b PX 60000 HOLDER h");
        assert_eq!(reply(&mut raw, "PRLOCK.REVOKE h"), ":2\r\n");
        let made = reply(&mut raw, "PRLOCK.CLAIM k PX 60000");
        assert!(made.starts_with("*2\r\n$32\r\n"), "{made}");
        raw.assert_silent();
    }
}

/// In a script the replies arrive as the server converts every command's: null is false, or nil in RESP3.
#[test]
fn replies_in_scripts() {
    let server = Server::start();
    let mut conn = server.conn();
    let script = "local got = redis.call('PRLOCK.CLAIM', KEYS[1], 'PX', 60000, 'TOKEN', 't')
        local refused = redis.call('PRLOCK.CLAIM', KEYS[1], 'PX', 60000, 'TOKEN', 'other')
        redis.setresp(3)
        local refused3 = redis.call('PRLOCK.CLAIM', KEYS[1], 'PX', 60000, 'TOKEN', 'other')
        local info3 = redis.call('PRLOCK.INFO', KEYS[1])
        redis.setresp(2)
        return {got[1], type(got[2]), tostring(refused), tostring(refused3), info3['map']['renewals'],
                redis.call('PRLOCK.RENEW', KEYS[1], 't', 'PX', 60000), redis.call('PRLOCK.RELEASE', KEYS[1], 't')}";
    let parts = items(&conn.ok(("EVAL", script, 1, "k")));
    let words: Vec<String> = parts[..4].iter().map(text).collect();
    assert_eq!(words, ["t", "number", "false", "nil"]);
    let numbers: Vec<i64> = parts[4..].iter().map(int).collect();
    assert_eq!(numbers, [0, 1, 1]);
}

/// Pipelined calls are answered in order, one reply each.
#[test]
fn a_pipeline_gets_one_reply_each() {
    let server = Server::start();
    let mut raw = server.raw();
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        for line in ["PRLOCK.CLAIM k PX 60000 TOKEN t", "PRLOCK.CLAIM k PX 60000", "PRLOCK.RELEASE k t"] {
            let words: Vec<Vec<u8>> = cmd(line);
            bytes.extend(redis::Cmd::new().arg(words).get_packed_command());
        }
    }
    raw.send(&bytes);
    for _ in 0..1_000 {
        assert!(raw.reply_bytes(PATIENCE).starts_with(b"*2\r\n$1\r\nt\r\n:"));
        assert_eq!(raw.reply_bytes(PATIENCE), b"$-1\r\n");
        assert_eq!(raw.reply_bytes(PATIENCE), b":1\r\n");
    }
    raw.assert_silent();
}
