//! LIST: which locks, in which order, page by page. CASES 29, 46, 48.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::RngExt;

use crate::support::{Conn, SeededRng, Server, Value, bytes, cmd, int, items, map, seeded_rng};

/// Sends many commands at once and takes their replies.
fn pipeline(conn: &mut Conn, commands: impl Iterator<Item = Vec<Vec<u8>>>) -> Vec<Value> {
    let mut pipe = redis::pipe();
    for command in commands {
        pipe.add_command(redis::Cmd::new()).arg(command);
    }
    pipe.query(conn).expect("a pipeline")
}

fn claim_command(key: &[u8], holder: &str) -> Vec<Vec<u8>> {
    [b"PRLOCK.CLAIM", key, b"PX", b"600000", b"TOKEN", b"t", b"HOLDER", holder.as_bytes()].map(<[u8]>::to_vec).to_vec()
}

/// Bytes that mean something in patterns, and a few that don't.
const LETTERS: &[u8] = b"ab-]^[\\*?cA\0\xff\x80";

fn random_text(rng: &mut SeededRng, most: usize) -> Vec<u8> {
    (0..rng.random_range(0..=most)).map(|_| LETTERS[rng.random_range(0..LETTERS.len())]).collect()
}

/// The pattern's own text, bent a little, so that it matches some.
fn likely_pattern(rng: &mut SeededRng, keys: &[Vec<u8>]) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in &keys[rng.random_range(0..keys.len())] {
        match rng.random_range(0..9) {
            0 => pattern.push(b'?'),
            1 => pattern.push(b'*'),
            2 => pattern.extend([b'[', *byte, b']']),
            3 => pattern.extend([b'[', b'a', b'-', *byte, b']']),
            4 => pattern.extend([b'[', b'^', LETTERS[rng.random_range(0..LETTERS.len())], b']']),
            5 => pattern.extend([b'\\', *byte]),
            _ => pattern.push(*byte),
        }
    }
    pattern
}

#[test]
fn match_gives_what_keys_gives() {
    let server = Server::start();
    let mut rng = seeded_rng();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let keys: BTreeSet<Vec<u8>> = (0..400).map(|_| random_text(&mut rng, 5)).collect();
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        pipeline(&mut conn, keys.iter().map(|key| claim_command(key, "h")));
        let patterns: Vec<Vec<u8>> = (0..2_000)
            .map(|round| if round % 2 == 0 { random_text(&mut rng, 7) } else { likely_pattern(&mut rng, &keys) })
            .chain([b"".to_vec(), b"*".to_vec(), b"**".to_vec(), b"[".to_vec(), b"[^".to_vec(), b"\\".to_vec()])
            .collect();
        let word = |name: &str, pattern: &[u8]| vec![name.as_bytes().to_vec(), pattern.to_vec()];
        let mut matches = 0;
        for chunk in patterns.chunks(250) {
            let due = pipeline(&mut conn, chunk.iter().map(|pattern| word("KEYS", pattern)));
            let found = pipeline(
                &mut conn,
                chunk.iter().map(|pattern| vec![b"PRLOCK.LIST".to_vec(), b"MATCH".to_vec(), pattern.clone()]),
            );
            for ((pattern, due), found) in chunk.iter().zip(due).zip(found) {
                let due: BTreeSet<Vec<u8>> = items(&due).iter().map(bytes).collect();
                let found: Vec<Vec<u8>> = items(&found).iter().map(|lock| bytes(&map(lock)["key"])).collect();
                matches += found.len();
                assert!(found.is_sorted_by(|a, b| a < b), "out of order for {}", pattern.escape_ascii());
                let found: BTreeSet<Vec<u8>> = found.into_iter().collect();
                assert_eq!(found, due, "MATCH {}", pattern.escape_ascii());
            }
        }
        assert!(matches > 10_000, "{matches}: too few for a test");
        conn.ok(("FLUSHDB",));
    }
}

/// HOLDER compares bytes; COUNT and AFTER cut out of what the rest gives. All of it beside a plain filter.
#[test]
fn filters_and_pages_agree_with_a_plain_filter() {
    let server = Server::start();
    let mut rng = seeded_rng();
    let holders = ["", "h", "h*", "h?", "*", "H", "other", "hh"];
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        let mut model: BTreeMap<Vec<u8>, &str> = BTreeMap::new();
        let mut locks = Vec::new();
        for number in 0..1_500 {
            let key = format!("{}:{number}", ["job", "jo", "task", "j"][rng.random_range(0..4)]).into_bytes();
            let holder = holders[rng.random_range(0..holders.len())];
            model.insert(key.clone(), holder);
            locks.push((key, holder));
        }
        pipeline(&mut conn, locks.iter().map(|(key, holder)| claim_command(key, holder)));
        for _ in 0..150 {
            let mut options: Vec<Vec<u8>> = Vec::new();
            let mut due: Vec<(&Vec<u8>, &&str)> = model.iter().collect();
            if rng.random() {
                let holder = holders[rng.random_range(0..holders.len())];
                options.extend([b"HOLDER".to_vec(), holder.into()]);
                due.retain(|(_, other)| **other == holder);
            }
            if rng.random() {
                let (pattern, head, tail) =
                    [("job*", "job", ""), ("j*7", "j", "7"), ("*1", "", "1"), ("jo:*", "jo:", "")]
                        [rng.random_range(0..4)];
                options.extend([b"MATCH".to_vec(), pattern.into()]);
                due.retain(|(key, _)| key.starts_with(head.as_bytes()) && key.ends_with(tail.as_bytes()));
            }
            if rng.random() {
                let after = if rng.random() {
                    locks[rng.random_range(0..locks.len())].0.clone()
                } else {
                    ["", "j", "jp", "zz", "job:99999"][rng.random_range(0..5)].into()
                };
                due.retain(|(key, _)| **key > after);
                options.extend([b"AFTER".to_vec(), after]);
            }
            if rng.random() {
                let count = [1, 2, 127, 128, 129, 5_000][rng.random_range(0..6)];
                options.extend([b"COUNT".to_vec(), count.to_string().into()]);
                due.truncate(count);
            }
            let words: Vec<&[u8]> = options.iter().map(Vec::as_slice).collect();
            let found = conn.list_with(&words);
            assert_eq!(found, due.into_iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), "{options:?}");
        }
        conn.ok(("FLUSHDB",));
    }
}

/// Set when it goes out of scope.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Every lock that lives through all the pages appears exactly once, whatever others do.
#[test]
fn pages_show_each_lasting_lock_once_while_others_come_and_go() {
    let server = Server::start();
    for db in [0, 3] {
        let lasting: Vec<Vec<u8>> = (0..2_000).map(|number| format!("k{number:05}").into_bytes()).collect();
        let mut conn = server.conn();
        conn.select(db);
        pipeline(&mut conn, lasting.iter().map(|key| claim_command(key, "h")));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The others stop also when this fails.
            let ends = Raised(&stop);
            for other in 0..2 {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let mut rng = seeded_rng();
                    let mut conn = server.conn();
                    conn.select(db);
                    while !stop.load(Ordering::Relaxed) {
                        let numbers: Vec<u32> = (0..20).map(|_| rng.random_range(0..2_000)).collect();
                        let names = |number: &u32| format!("k{number:05}x{other}").into_bytes();
                        let claims = numbers.iter().map(|number| claim_command(&names(number), "h"));
                        pipeline(&mut conn, claims);
                        let gone = numbers.iter().map(|number| match number % 100 {
                            0..50 => vec![b"DEL".to_vec(), names(number)],
                            50 => vec![b"RENAME".to_vec(), names(number), format!("z{number}x{other}").into_bytes()],
                            _ => vec![b"PRLOCK.RELEASE".to_vec(), names(number), b"t".to_vec()],
                        });
                        // A name drawn twice is gone at its second rename.
                        let mut pipe = redis::pipe();
                        pipe.ignore_errors();
                        for command in gone {
                            pipe.add_command(redis::Cmd::new()).arg(command);
                        }
                        let _ = pipe.query::<Value>(&mut *conn);
                    }
                });
            }
            for count in ["1", "7", "100", "333"] {
                // Pages of one are many: only the first few.
                let most = if count == "1" { 300 } else { usize::MAX };
                let mut seen: Vec<Vec<u8>> = Vec::new();
                let mut after = Vec::new();
                for _ in 0..most {
                    let page = conn.list_with(&[b"AFTER", &after, b"COUNT", count.as_bytes()]);
                    let Some(last) = page.last() else { break };
                    after = last.clone();
                    seen.extend(page);
                }
                assert!(seen.is_sorted_by(|a, b| a < b), "a lock twice, or out of order");
                let lasted: Vec<&Vec<u8>> = seen.iter().filter(|key| key.starts_with(b"k") && key.len() == 6).collect();
                let due: Vec<&Vec<u8>> = lasting.iter().filter(|key| most == usize::MAX || **key <= after).collect();
                assert!(lasted == due, "COUNT {count}: {} of {}", lasted.len(), due.len());
            }
            drop(ends);
        });
        server.assert_locks_agree();
        conn.ok(("FLUSHDB",));
    }
}

#[test]
fn limits_and_mistakes() {
    let server = Server::start();
    for db in [0, 3] {
        let mut conn = server.conn();
        conn.select(db);
        assert_eq!(conn.list(), Vec::<String>::new());
        for line in ["a", "b", "c"] {
            conn.claim(line);
        }
        assert_eq!(conn.list_with(&[b"COUNT", b"9223372036854775807"]).len(), 3);
        assert_eq!(conn.list_with(&[b"after", b"a", b"count", b"1"]), [b"b"]);
        assert_eq!(conn.list_with(&[b"COUNT", b"1", b"MATCH", b"[bc]", b"AFTER", b"b", b"HOLDER", b"h"]), [b"c"]);
        // Behind the key that is the pattern's whole head.
        assert_eq!(conn.list_with(&[b"MATCH", b"a*", b"AFTER", b"a"]), Vec::<Vec<u8>>::new());
        conn.claim("ab");
        assert_eq!(conn.list_with(&[b"MATCH", b"a*", b"AFTER", b"a"]), [b"ab"]);
        conn.ok(("DEL", "ab"));
        for line in
            ["LIST COUNT", "LIST COUNT 0", "LIST COUNT -1", "LIST FOO", "LIST MATCH a MATCH b", "LIST AFTER a AFTER b"]
        {
            assert_eq!(conn.err(cmd(&format!("PRLOCK.{line}"))), "ERR syntax error", "{line}");
        }
        for count in ["x", "1.5", "9223372036854775808", "+5"] {
            let error = conn.err(("PRLOCK.LIST", "COUNT", count));
            assert_eq!(error, "ERR value is not an integer or out of range", "{count}");
        }
        // CASES 29: what only looks like a lock.
        conn.ok(("SET", "pr-actuation-lock:x", "foo"));
        assert_eq!(conn.list(), ["a", "b", "c"]);
        assert_eq!(conn.ok(("PRLOCK.REVOKE", "foo")), Value::Int(0));
        assert_eq!(conn.ok(("PRLOCK.REVOKE", "h")), Value::Int(3));
        assert_eq!(bytes(&conn.ok(("GET", "pr-actuation-lock:x"))), b"foo");
        conn.ok(("FLUSHDB",));
    }
}

/// CASES 46: a hundred thousand locks, flushed in the background while others claim; and a page, a literal MATCH and a
/// holder cost no walk over all.
#[test]
fn a_hundred_thousand_locks() {
    const MANY: u32 = 100_000;
    let server = Server::start();
    let mut conn = server.conn();
    for (db, many) in [(0, 10_000), (3, MANY)] {
        conn.select(db);
        for start in (0..many).step_by(10_000) {
            let names = (start..start + 10_000).map(|number| {
                // In no order: 7919 has no factor in common with their number.
                let number = u64::from(number) * 7_919 % u64::from(many);
                claim_command(format!("k{number:06}").as_bytes(), if number == 7 { "one" } else { "h" })
            });
            pipeline(&mut conn, names);
        }
        let size = int(&conn.ok(("DBSIZE",))) as usize;
        assert_eq!(size, many as usize);
        let all = conn.list_with(&[]);
        assert_eq!(all.len(), size);
        assert!(all.is_sorted_by(|a, b| a < b));

        let cost = |conn: &mut Conn, options: &[&[u8]], due: usize| {
            server.processor_ms_of_twenty(|| assert_eq!(conn.list_with(options).len(), due))
        };
        let whole = cost(&mut conn, &[b"MATCH", b"*no such key"], 0);
        let small: [(&[&[u8]], usize); 5] = [
            (&[b"COUNT", b"10"], 10),
            (&[b"AFTER", b"k005000", b"COUNT", b"10"], 10),
            (&[b"HOLDER", b"one"], 1),
            (&[b"MATCH", b"k000007"], 1),
            (&[b"MATCH", b"k00000?"], 10),
        ];
        for (options, due) in small {
            let due = if due == 10 { conn.list_with(options).len() } else { due };
            let time = cost(&mut conn, options, due);
            // With few locks the command itself is most of both.
            assert!(many < MANY || time * 8.0 < whole, "{options:?} took {time} ms, a walk over all {whole} ms");
        }
    }

    let mut other = server.conn();
    other.select(3);
    conn.select(0);
    let mut pipe = redis::pipe();
    pipe.cmd("FLUSHALL").arg("ASYNC");
    for number in 0..100 {
        pipe.add_command(redis::Cmd::new()).arg(claim_command(format!("new{number}").as_bytes(), "h"));
    }
    pipe.query::<Value>(&mut *conn).expect("a flush and claims");
    for number in 0..100 {
        other.claim(&format!("new{number}"));
    }
    assert_eq!(conn.gauge("held"), 200);
    server.assert_locks_agree();
    assert_eq!(conn.list().len(), 100);
    assert!(conn.list().iter().all(|key| key.starts_with("new")));
    crate::support::wait_until("the memory to come back", Duration::from_secs(30), || {
        (server.info_number("lazyfree_pending_objects") == 0).then_some(())
    });
    assert_eq!(conn.gauge("held"), 200);
}

/// SPEC: LIST and REVOKE never walk the keyspace: among very many other keys they cost what they cost alone.
#[test]
fn other_keys_cost_a_list_nothing() {
    let server = Server::start();
    let mut conn = server.conn();
    let script = "for i = 1, 200000 do redis.call('SET', 'k' .. i, 'x') end";
    conn.ok(("EVAL", script, 0));
    for number in 0..10 {
        conn.claim(&format!("k:{number}"));
    }
    let mut walker = server.conn();
    let walk = server.processor_ms_of_twenty(|| assert_eq!(items(&walker.ok(("KEYS", "no such key"))).len(), 0));
    let lists: [&[&[u8]]; 4] = [&[], &[b"MATCH", b"k*"], &[b"MATCH", b"*0"], &[b"HOLDER", b"h"]];
    for options in lists {
        let time = server.processor_ms_of_twenty(|| assert!(!conn.list_with(options).is_empty()));
        assert!(time * 8.0 < walk, "{options:?} took {time} ms, a walk over all keys {walk} ms");
    }
    let time = server.processor_ms_of_twenty(|| assert_eq!(conn.int("PRLOCK.REVOKE nobody"), 0));
    assert!(time * 8.0 < walk, "REVOKE took {time} ms, a walk over all keys {walk} ms");
}
