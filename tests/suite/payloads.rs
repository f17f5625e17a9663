//! RESTORE of whatever somebody sends, in every form there was: broken, cut, changed, from elsewhere, from the future.
//! An error or a lock, and never a crash.

use rand::RngExt;

use crate::support::{
    Conn, Dumper, ENCODINGS, LAST_ENCODING, Server, Stored, Value, bytes, int, lock_info, seeded_rng,
};

const DAY_US: u64 = 86_400_000_000;

fn restore(conn: &mut Conn, payload: &[u8]) -> Result<Value, String> {
    conn.call(("RESTORE", "k", 60_000, payload, "REPLACE"))
}

#[track_caller]
fn assert_refused(conn: &mut Conn, payload: &[u8], what: &str) {
    match restore(conn, payload) {
        Err(error) => assert!(error.starts_with("ERR Bad data format"), "{what}: {error}"),
        Ok(_) => panic!("{what}: restored"),
    }
    assert_eq!(conn.ok(("EXISTS", "k")), Value::Int(0), "{what}");
}

fn now_us(conn: &mut Conn) -> u64 {
    conn.time_ms() as u64 * 1_000
}

#[test]
fn a_payload_made_by_hand_is_a_lock() {
    let server = Server::start();
    for (db, encoding) in [0, 3].into_iter().flat_map(|db| ENCODINGS.map(|encoding| (db, encoding))) {
        let mut conn = server.conn();
        conn.select(db);
        let dumper = Dumper::new(&mut conn);
        let fence = now_us(&mut conn);
        restore(&mut conn, &dumper.payload(encoding, &Stored::new(fence))).expect("a good payload");
        let info = lock_info(&mut conn, "k").expect("a lock");
        assert_eq!(int(&info["fence"]), fence as i64);
        assert_eq!(int(&info["renewals"]), 3);
        assert_eq!(bytes(&info["holder"]), b"h");
        assert_eq!(conn.list(), ["k"]);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", "token", "PX", 60_000))), 1);
        assert!(conn.claim("other") as u64 > fence);
        conn.ok(("FLUSHDB",));
    }
}

#[test]
fn a_payload_cut_anywhere_is_refused() {
    let server = Server::start();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    for encoding in ENCODINGS {
        let value = Stored::new(7).form(encoding);
        let whole = dumper.object(encoding, &value);
        // Cut two bytes from its end it is whole again: the footer's first byte is its value's last, the second ends it.
        for cut in (0..whole.len()).filter(|cut| *cut != whole.len() - 2) {
            assert_refused(&mut conn, &dumper.sealed(&whole[..cut]), &format!("object {encoding} cut at {cut}"));
        }
        let mut with = |value: &[u8], what: &str| {
            assert_refused(
                &mut conn,
                &dumper.sealed(&dumper.object(encoding, value)),
                &format!("{what} of {encoding}"),
            );
        };
        for cut in 0..value.len() {
            // Here the server's own frame is whole.
            with(&value[..cut], &format!("{cut} bytes"));
        }
        with(&[&value[..], b"x"].concat(), "a byte too many");
        with(&[b'x'; 16_000], "16,000 bytes");
        for cut in 0..dumper.sealed(&whole).len() {
            assert!(restore(&mut conn, &dumper.sealed(&whole)[..cut]).is_err());
        }
    }
    assert_eq!(conn.gauge("held"), 0);
    server.assert_locks_agree();
}

#[test]
fn parts_out_of_range_are_refused() {
    let server = Server::start();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    let good = || Stored::new(7);
    let bad_in_the_first = [
        ("version 0", Stored { version: 0, ..good() }),
        ("a later version", Stored { version: 2, ..good() }),
        ("an unknown change", Stored { change: 200, ..good() }),
        ("negative deadline", Stored { expires_at_ms: -2, ..good() }),
    ];
    for (what, stored) in bad_in_the_first {
        assert_refused(&mut conn, &dumper.payload(0, &stored), what);
    }
    let bad = [
        ("fence 0", Stored { fence: 0, ..good() }),
        ("fence 2^53", Stored { fence: 1 << 53, ..good() }),
        ("the greatest fence", Stored { fence: u64::MAX, ..good() }),
        ("claimed before 1970", Stored { claimed_at_ms: -1, ..good() }),
        ("renewed before 1970", Stored { renewed_at_ms: i64::MIN, ..good() }),
        ("negative linger", Stored { linger_ms: -2, ..good() }),
        ("no token", Stored { token: Vec::new(), ..good() }),
        ("a long token", Stored { token: vec![b't'; 513], ..good() }),
        ("a long token of hex digits", Stored { token: vec![b'a'; 514], ..good() }),
        ("a long holder", Stored { holder: vec![b'h'; 513], ..good() }),
    ];
    for (what, stored) in bad {
        for encoding in ENCODINGS {
            assert_refused(&mut conn, &dumper.payload(encoding, &stored), &format!("{what} in {encoding}"));
        }
    }
    // Each form is read as what it says to be, and as nothing else.
    for (form, encoding) in [(0, 1), (1, 0)] {
        let object = dumper.object(encoding, &good().form(form));
        assert_refused(&mut conn, &dumper.sealed(&object), &format!("form {form} as {encoding}"));
    }
    let extreme = Stored {
        claimed_at_ms: i64::MAX,
        renewed_at_ms: i64::MAX,
        renewals: u32::MAX,
        linger_ms: i64::MAX,
        token: vec![0xff; 512],
        holder: vec![0; 512],
        ..good()
    };
    for encoding in ENCODINGS {
        restore(&mut conn, &dumper.payload(encoding, &extreme)).expect("the greatest of everything");
        let info = lock_info(&mut conn, "k").expect("a lock");
        assert_eq!((int(&info["held-ms"]), int(&info["idle-ms"])), (0, 0), "ages are never negative");
        assert_eq!(int(&info["linger-ms"]), i64::MAX);
        assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", vec![0xffu8; 512], "PX", 1_000))), 1);
    }
}

/// One lock has one form: what says it otherwise was written by no module.
#[test]
fn what_the_second_form_would_say_otherwise_is_refused() {
    const RENEWED: u64 = 1 << 60;
    const DATED: u64 = 1 << 61;
    const LINGERS: u64 = 1 << 62;
    const HALVED: u64 = 1 << 63;
    let server = Server::start();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    let payload =
        |flags: u64, rest: &[u8]| dumper.sealed(&dumper.object(1, &[&(7 | flags).to_le_bytes()[..], rest].concat()));
    let long = |length: &[u8], part: &[u8]| [b"\x01t", length, part].concat();
    for (what, flags, rest) in [
        ("bits that mean nothing", 1 << 53, &b"\x01t\0"[..]),
        ("all bits that mean nothing", 0x7f << 53, b"\x01t\0"),
        ("no token and no holder", 0, b""),
        ("a token without its last byte", 0, b"\x02t"),
        ("a token of the greatest length", 0, b"\xff\xfft\0"),
        ("half a length", 0, b"\x80"),
        ("a length in two bytes instead of one", 0, b"\x80\x01t\0"),
        ("a holder's length in two bytes instead of one", 0, &long(b"\x80\x7f", &[b'h'; 127])),
        ("hex digits that are not halved", 0, b"\x02ab\0"),
        ("nothing that is halved", HALVED, b"\0\0"),
        ("257 bytes that are halved", HALVED, &[&b"\x81\x01"[..], &[7; 257], b"\0"].concat()),
        ("a flag and no time", DATED, b"\x01t\0"),
        ("the time of the fence", DATED, b"\x01t\0\0"),
        ("a number that ends with nothing", DATED, b"\x01t\0\x82\0"),
        ("a number without an end", DATED, b"\x01t\0\x80"),
        ("a number of 65 bits", DATED, b"\x01t\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        ("a number of eleven bytes", DATED, b"\x01t\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        ("never renewed", RENEWED, b"\x01t\0\0\0"),
        ("2^32 renewals", RENEWED, b"\x01t\0\x02\x80\x80\x80\x80\x10"),
        ("a linger of 2^63", LINGERS, b"\x01t\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        ("a linger that no flag tells of", 0, b"\x01t\0\x05"),
    ] {
        assert_refused(&mut conn, &payload(flags, rest), what);
    }
    // What stands next to them is taken.
    for (flags, rest) in [
        (0, &b"\x01t\0"[..]),
        (0, &long(b"\x80\x80", &[b'h'; 128])),
        (HALVED, b"\x01\xab\0"),
        (HALVED, &[&b"\x81\0"[..], &[7; 256], b"\0"].concat()),
        (DATED, b"\x01t\0\x02"),
        (RENEWED, b"\x01t\0\x02\0"),
        (RENEWED, b"\x01t\0\0\xff\xff\xff\xff\x0f"),
        (LINGERS, b"\x01t\0\0"),
        (LINGERS, b"\x01t\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    ] {
        restore(&mut conn, &payload(flags, rest)).expect("as the module writes it");
        assert_eq!(lock_info(&mut conn, "k").map(|info| int(&info["fence"])), Some(7));
    }
}

/// Weeks after its last renewal, and after millions of them, a lock is kept in another form; nothing of that shows.
#[test]
fn a_lock_that_was_renewed_long_ago_or_very_often_is_renewed() {
    const DAY_MS: i64 = 86_400_000;
    let server = Server::start();
    for (db, days, renewals) in [(0, 60, 7), (3, 1, u32::MAX >> 10), (3, 60, 5_000_000), (0, 0, u32::MAX - 1)] {
        let mut conn = server.conn();
        conn.select(db);
        let dumper = Dumper::new(&mut conn);
        let claimed_at_ms = conn.time_ms() - days * DAY_MS;
        let stored = Stored {
            claimed_at_ms,
            renewed_at_ms: claimed_at_ms,
            renewals,
            holder: b"some-worker".to_vec(),
            linger_ms: 5_000,
            ..Stored::new(claimed_at_ms as u64 * 1_000)
        };
        restore(&mut conn, &dumper.payload(LAST_ENCODING, &stored)).expect("a good payload");
        for round in 1..=3 {
            assert_eq!(int(&conn.ok(("PRLOCK.RENEW", "k", "token", "PX", 50_000))), 1);
            let info = lock_info(&mut conn, "k").expect("a lock");
            assert_eq!(int(&info["renewals"]), i64::from(renewals.saturating_add(round)));
            assert_eq!((int(&info["fence"]), int(&info["linger-ms"])), (stored.fence as i64, 5_000));
            assert!((0..DAY_MS / 2).contains(&int(&info["idle-ms"])));
            assert!((days * DAY_MS..(days + 1) * DAY_MS).contains(&int(&info["held-ms"])));
            assert!((40_000..=50_000).contains(&int(&info["ttl-ms"])));
            assert_eq!((bytes(&info["holder"]), conn.list()), (b"some-worker".to_vec(), vec!["k".to_owned()]));
        }
        server.assert_locks_agree();
        assert_eq!(int(&conn.ok(("PRLOCK.RELEASE", "k", "token"))), 1);
        assert_eq!((conn.gauge("held"), conn.gauge("linger_bound")), (0, 0));
    }
}

/// No RESTORE can push the fences away.
#[test]
fn a_fence_more_than_a_day_ahead_is_refused() {
    let server = Server::start();
    for (db, encoding) in [(0, 0), (3, 0), (0, 1), (3, 1)] {
        let mut conn = server.conn();
        conn.select(db);
        let dumper = Dumper::new(&mut conn);
        let last = conn.gauge("last_fence");
        let now = now_us(&mut conn);
        for fence in [now + DAY_US + 60_000_000, (1 << 53) - 1] {
            assert_refused(&mut conn, &dumper.payload(encoding, &Stored::new(fence)), &format!("fence {fence}"));
        }
        assert_eq!(conn.gauge("last_fence"), last);
        let ahead = now + DAY_US / 2 + db as u64;
        restore(&mut conn, &dumper.payload(encoding, &Stored::new(ahead))).expect("half a day ahead");
        assert!(conn.claim("other") as u64 > ahead);
        conn.ok(("FLUSHDB",));
    }
}

#[test]
fn payloads_of_other_types_are_no_locks() {
    let server = Server::start();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    conn.ok(("SET", "string", "x"));
    conn.ok(("RPUSH", "list", "x"));
    for key in ["string", "list"] {
        let payload = bytes(&conn.ok(("DUMP", key)));
        restore(&mut conn, &payload).expect("a payload of the server's own");
        assert_eq!(conn.list(), Vec::<String>::new());
    }
    conn.ok(("DEL", "k"));
    // Another module's type: the first character of its name differs.
    let mut foreign = dumper.object(LAST_ENCODING, &Stored::new(7).form(LAST_ENCODING));
    foreign[2] ^= 0x10;
    assert!(restore(&mut conn, &dumper.sealed(&foreign)).is_err());
    // A good checksum over nothing, and no checksum at all.
    assert!(restore(&mut conn, &dumper.sealed(&[])).is_err());
    assert!(restore(&mut conn, b"").is_err());
    assert_eq!(conn.gauge("held"), 0);
}

/// PITFALLS 19: no bytes may end the server.
#[test]
fn thousands_of_changed_payloads_give_an_error_or_a_lock() {
    let server = Server::start();
    let mut rng = seeded_rng();
    let mut conn = server.conn();
    let dumper = Dumper::new(&mut conn);
    let now = now_us(&mut conn);
    conn.ok(("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", vec![b'a'; 300], "HOLDER", "h"));
    let compressed = Dumper::unsealed(&bytes(&conn.ok(("DUMP", "k")))).to_vec();
    let mut restored = [0; 3];
    for round in 0..6_000 {
        let kind = round % 3;
        let mut object = if kind == 2 {
            compressed.clone()
        } else {
            let linger_ms = if rng.random() { -1 } else { 5 };
            let encoding = ENCODINGS[kind];
            dumper.object(encoding, &Stored { linger_ms, ..Stored::new(now) }.form(encoding))
        };
        // The first byte says which type the rest is: other types' decoders are the server's own matter.
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(1..object.len());
            match rng.random_range(0..5) {
                0 => object[at] ^= 1 << rng.random_range(0..8),
                1 => object[at] = rng.random(),
                2 => drop(object.remove(at)),
                3 => object.insert(at, rng.random()),
                _ => object.truncate(at.max(12)),
            }
        }
        if restore(&mut conn, &dumper.sealed(&object)).is_ok() {
            restored[kind] += 1;
            assert!(lock_info(&mut conn, "k").is_some());
            assert_eq!(conn.list(), ["k"]);
            conn.ok(("MEMORY", "USAGE", "k"));
            conn.ok(("DUMP", "k"));
        }
    }
    assert!(restored.iter().all(|count| *count > 10), "{restored:?} were restored: the changes reach no decoder");
    server.assert_locks_agree();
    conn.ok(("FLUSHALL",));
    assert_eq!(conn.gauge("held"), 0);
}
