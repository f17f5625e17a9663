//! Bytes are bytes: in keys, tokens and holders, everywhere. CASES 7.

use crate::support::{Conn, Server, Value, bytes, grant, int, items, map, wait_for_offset_equal};

/// Names of every kind: format strings, control bytes, invalid UTF-8, as serializers write them, long, hex, numbers.
fn samples() -> Vec<Vec<u8>> {
    let mut samples: Vec<Vec<u8>> = [
        &b"\0"[..],
        b"\0\0",
        b"a\0b",
        b"\r\n",
        b"$3\r\nfoo\r\n",
        b"\xff\xfe\x80",
        b"\xc3\x28",
        b"%s%n%s%n%d%p",
        b"%.*s",
        b"{}{0}{:?}",
        b" leading and trailing ",
        b"\"quoted\" 'quoted' \\",
        b"*?[a-z]\\",
        b"12345",
        b"-0",
        b"9223372036854775807",
        b"00ff",
        b"00FF",
        b"deadbeef0",
        b"\x82\xa5token\xa1t\xa3now\xcf\x00\x00\x01",
        b"\x00\x00\x00\x02\x14\x01\x11\x02id\x06\x2a",
        b"x\x9c\xcbH\xcd\xc9\xc9\x07\x00\x06,\x02\x15",
        "\u{1f512} schlo\u{df}".as_bytes(),
        b"PX",
        b"STEAL",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    samples.extend((0..=255).map(|byte| vec![byte]));
    samples.push((0..=255).collect());
    samples.push(vec![b'a'; 512]);
    samples.push((0..512).map(|n| (n * 7 % 256) as u8).collect());
    samples.sort();
    samples.dedup();
    samples
}

/// Claims with these bytes as key, token and holder, looks at them from all sides, renews and releases.
fn round_trip(conn: &mut Conn, key: &[u8], token: &[u8], holder: &[u8]) {
    let claim = ("PRLOCK.CLAIM", key, "PX", 60_000, "TOKEN", token, "HOLDER", holder);
    let granted = grant(&conn.ok(claim)).expect("a grant");
    assert_eq!(granted.token, token);
    assert_eq!(grant(&conn.ok(claim)), Some(granted.clone()));
    assert_eq!(conn.ok(("PRLOCK.CLAIM", key, "PX", 60_000)), Value::Nil);
    let info = map(&conn.ok(("PRLOCK.INFO", key)));
    assert_eq!((bytes(&info["key"]), bytes(&info["holder"])), (key.to_vec(), holder.to_vec()));
    let listed = items(&conn.ok(("PRLOCK.LIST", "HOLDER", holder)));
    assert_eq!(listed.len(), 1);
    assert_eq!(bytes(&map(&listed[0])["key"]), key);
    assert_eq!(bytes(&map(&listed[0])["holder"]), holder);
    // One byte more, one byte less, the first byte another.
    let mut others = vec![[token, b"\0"].concat(), [token, b"x"].concat(), [b"x", token].concat()];
    if token.len() > 1 {
        others.push(token[1..].to_vec());
        others.push(token[..token.len() - 1].to_vec());
    }
    others.push(token.iter().map(|byte| byte ^ 1).collect());
    others.retain(|other| other.len() <= 512);
    for other in &others {
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, other, "PX", 60_000))), 0);
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, other))), 0);
    }
    assert_eq!(int(&conn.ok(("PRLOCK.RENEW", key, token, "PX", 60_000, "FENCE", granted.fence))), 1);
    assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", key, token))), 1);
    assert_eq!(conn.ok(("PRLOCK.INFO", key)), Value::Nil);
}

/// SPEC: bytes are bytes. CASES 8: an absent key never equals an empty token (see `errors.rs` for the error).
#[test]
fn every_sample_as_key_token_and_holder() {
    let server = Server::builder().config("notify-keyspace-events", "KEA").start();
    for db in [0, 3] {
        let mut conn = server.conn_with(Conn::resp2().set_db(db));
        for sample in samples() {
            round_trip(&mut conn, &sample, &sample, &sample);
        }
        // Only a key may be empty or long.
        for key in [Vec::new(), vec![b'k'; 64 * 1024], b"%n".repeat(32 * 1024)] {
            round_trip(&mut conn, &key, b"token", b"h");
            round_trip(&mut conn, &key, &[0xff; 512], &[0; 512]);
        }
        assert_eq!(int(&conn.ok(("DBSIZE",))), 0);
    }
}

/// On a plain string too.
#[test]
fn every_sample_as_a_plain_strings_token() {
    let server = Server::start();
    let mut conn = server.conn();
    for sample in samples() {
        conn.ok(("SET", &sample, &sample, "PX", 60_000));
        let mut other = sample.clone();
        other[0] ^= 1;
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", &sample, &other))), 0);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", &sample, &sample, "PX", 60_000))), 1);
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", &sample, &sample))), 1);
    }
    assert_eq!(int(&conn.ok(("DBSIZE",))), 0);
}

/// REVOKE compares bytes and never a pattern.
#[test]
fn revoke_and_list_compare_holders_as_bytes() {
    let server = Server::start();
    let mut conn = server.conn();
    let samples: Vec<Vec<u8>> = samples();
    for (number, holder) in samples.iter().enumerate() {
        conn.ok(("PRLOCK.CLAIM", format!("k{number}"), "PX", 60_000, "HOLDER", holder));
    }
    for pattern in ["*", "?", "k*", "[a-z]"] {
        assert_eq!(
            items(&conn.ok(("PRLOCK.LIST", "HOLDER", pattern))).len(),
            usize::from(samples.contains(&pattern.as_bytes().to_vec()))
        );
    }
    let mut held = samples.len();
    for holder in &samples {
        let freed = int(&conn.ok(("PRLOCK.REVOKE", holder)));
        held -= usize::try_from(freed).expect("a count");
        assert_eq!(items(&conn.ok(("PRLOCK.LIST",))).len(), held);
        assert_eq!(int(&conn.ok(("PRLOCK.REVOKE", holder))), 0);
    }
    assert_eq!(held, 0);
}

/// Through RDB, AOF and a replica: the same bytes hold the lock.
#[test]
fn bytes_survive_restarts_and_replication() {
    let server = Server::builder().aof().start();
    let replica = server.replica();
    let mut conn = server.conn_with(Conn::resp2().set_db(3));
    for sample in samples() {
        conn.ok(("PRLOCK.CLAIM", &sample, "PX", 600_000, "TOKEN", &sample, "HOLDER", &sample));
    }
    let listed = conn.ok(("PRLOCK.LIST",));
    let names = |value: &Value| -> Vec<(Vec<u8>, Vec<u8>, i64)> {
        items(value)
            .iter()
            .map(map)
            .map(|lock| (bytes(&lock["key"]), bytes(&lock["holder"]), int(&lock["fence"])))
            .collect()
    };
    wait_for_offset_equal(&server, &replica);
    let mut on_replica = replica.conn_with(Conn::resp2().set_db(3));
    assert_eq!(names(&on_replica.ok(("PRLOCK.LIST",))), names(&listed));
    let digest = |conn: &mut Conn| bytes(&conn.ok(("DEBUG", "DIGEST")));
    assert_eq!(digest(&mut conn), digest(&mut on_replica));
    let before = digest(&mut conn);
    conn.ok(("DEBUG", "RELOAD"));
    assert_eq!(digest(&mut conn), before);
    server.restart();
    let mut conn = server.conn_with(Conn::resp2().set_db(3));
    assert_eq!(digest(&mut conn), before);
    assert_eq!(names(&conn.ok(("PRLOCK.LIST",))), names(&listed));
    for sample in samples() {
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", &sample, &sample, "PX", 600_000))), 1, "{sample:?}");
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", &sample, &sample))), 1, "{sample:?}");
    }
}
