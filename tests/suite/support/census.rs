//! Locks as the module shows them, beside what the keyspace holds.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::{Conn, Server, bytes, find_info, int, items, map, text};

/// Databases of a server with the default settings.
const DBS: i64 = 16;

/// What `TYPE` prints for a lock.
pub const LOCK_TYPE: &str = "prlock-rs";

impl Conn {
    /// Claims `key` for a minute, with token `t:<key>` and holder `h`; returns the fence.
    #[track_caller]
    pub fn claim(&mut self, key: &str) -> i64 {
        self.claim_px(key, 60_000)
    }

    /// The same with another TTL.
    #[track_caller]
    pub fn claim_px(&mut self, key: &str, ttl_ms: i64) -> i64 {
        let token = format!("t:{key}");
        let reply = self.ok(("PRLOCK.CLAIM", key, "PX", ttl_ms, "TOKEN", &token, "HOLDER", "h"));
        let granted = items(&reply);
        assert_eq!(bytes(&granted[0]), token.as_bytes());
        int(&granted[1])
    }

    /// Goes to another database.
    #[track_caller]
    pub fn select(&mut self, db: i64) {
        self.ok(("SELECT", db));
    }

    /// The keys that PRLOCK.LIST names, with these options.
    #[track_caller]
    pub fn list_with(&mut self, options: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut command: Vec<&[u8]> = vec![b"PRLOCK.LIST"];
        command.extend_from_slice(options);
        items(&self.ok(command)).iter().map(|lock| bytes(&map(lock)["key"])).collect()
    }

    /// The keys that PRLOCK.LIST names, for keys that are text.
    #[track_caller]
    pub fn list(&mut self) -> Vec<String> {
        self.list_with(&[]).into_iter().map(|key| String::from_utf8(key).expect("a key in UTF-8")).collect()
    }

    /// A field of `INFO prlock`, without its prefix.
    #[track_caller]
    pub fn gauge(&mut self, field: &str) -> i64 {
        let info = text(&self.ok(("INFO", "prlock")));
        let value = find_info(&info, &format!("prlock_{field}")).unwrap_or_else(|| panic!("no {field} in {info}"));
        value.parse().expect("an integer")
    }

    /// All keys of the selected database that are locks by `TYPE`, each with its PTTL; found by SCAN.
    #[track_caller]
    pub fn scan_locks(&mut self) -> BTreeMap<Vec<u8>, i64> {
        let mut names = BTreeSet::new();
        let mut cursor = b"0".to_vec();
        loop {
            let reply = items(&self.ok(("SCAN", &cursor, "COUNT", 1_000)));
            cursor = bytes(&reply[0]);
            names.extend(items(&reply[1]).iter().map(bytes));
            if cursor == b"0" {
                break;
            }
        }
        let mut found = BTreeMap::new();
        for name in names {
            if text(&self.ok(("TYPE", &name))) == LOCK_TYPE {
                let rest_ms = int(&self.ok(("PTTL", &name)));
                // It can have passed its deadline between the two.
                if rest_ms != -2 {
                    found.insert(name, rest_ms);
                }
            }
        }
        found
    }
}

impl Server {
    /// LIST of every database and the gauge `held` agree with the keyspace. Locks may pass their deadlines meanwhile; on
    /// a replica, or while writes are paused, past ones stay in the gauge.
    #[track_caller]
    pub fn assert_locks_agree(&self) {
        let mut conn = self.conn();
        let (mut most, mut least) = (0, 0);
        for db in 0..DBS {
            conn.select(db);
            let before = conn.scan_locks();
            let listed = items(&conn.ok(("PRLOCK.LIST",)));
            let after = conn.scan_locks();
            let listed: Vec<(Vec<u8>, i64)> = listed
                .iter()
                .map(|lock| {
                    let lock = map(lock);
                    (bytes(&lock["key"]), int(&lock["ttl-ms"]))
                })
                .collect();
            assert!(listed.is_sorted_by(|a, b| a.0 < b.0), "LIST of db {db} is out of order: {listed:?}");
            for (key, ttl_ms) in &listed {
                let due_ms = before.get(key).unwrap_or_else(|| panic!("a ghost in db {db}: {}", key.escape_ascii()));
                assert_eq!(*ttl_ms < 0, *due_ms < 0, "the deadline of {} in db {db}", key.escape_ascii());
                assert!(ttl_ms <= due_ms, "the deadline of {} in db {db}", key.escape_ascii());
            }
            for (key, ttl_ms) in &after {
                let found = listed.iter().find(|(name, _)| name == key);
                let (_, due_ms) = found.unwrap_or_else(|| panic!("not listed in db {db}: {}", key.escape_ascii()));
                assert!(ttl_ms <= due_ms, "the deadline of {} in db {db}", key.escape_ascii());
            }
            most += before.len() as i64;
            least += after.len() as i64;
        }
        let held = conn.gauge("held");
        assert!(held >= least, "held:{held}, but {least} locks are there");
        if self.is_primary() {
            assert!(held <= most, "held:{held}, but only {most} locks were there");
        }
    }

    /// What DEBUG DIGEST says of the whole data set.
    #[track_caller]
    pub fn digest(&self) -> String {
        text(&self.conn().ok(("DEBUG", "DIGEST")))
    }

    /// Everything about the locks of all databases that replicas and files must keep: per database and key the digest of
    /// the value (token, holder, fence, times) and the absolute deadline.
    #[track_caller]
    pub fn lock_states(&self) -> BTreeMap<(i64, Vec<u8>), (String, i64)> {
        let mut conn = self.conn();
        let mut states = BTreeMap::new();
        for db in 0..DBS {
            conn.select(db);
            for key in conn.scan_locks().into_keys() {
                let digest = text(&items(&conn.ok(("DEBUG", "DIGEST-VALUE", &key)))[0]);
                let expires_at_ms = int(&conn.ok(("PEXPIRETIME", &key)));
                states.insert((db, key), (digest, expires_at_ms));
            }
        }
        states
    }
}

/// The fields of PRLOCK.INFO, or none if there is no lock.
#[track_caller]
pub fn lock_info(conn: &mut Conn, key: &str) -> Option<BTreeMap<String, Value>> {
    match conn.ok(("PRLOCK.INFO", key)) {
        Value::Nil => None,
        found => Some(map(&found)),
    }
}
