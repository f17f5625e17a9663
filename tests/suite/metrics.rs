//! What operators' tools read: the page on metrics, the script for the exporter and the dashboard name just what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::{Server, Value, bytes, items, text};

/// What the exporter's script adds to the fields of `INFO prlock`.
const OLDEST: &str = "prlock_oldest_held_ms";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The fields of `INFO prlock`.
fn fields(server: &Server) -> BTreeMap<String, u64> {
    let info = bytes(&server.conn().ok(("INFO", "prlock")));
    let lines = String::from_utf8(info).expect("a text");
    let fields = lines.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

/// What the script returns to the exporter, which calls it without keys and with a 0.
fn scrape(server: &Server) -> BTreeMap<String, String> {
    let reply = server.conn().ok(("EVAL", read("examples/grafana/prlock.lua"), 0, 0));
    items(&reply).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn words_with<'a>(page: &'a str, separator: impl Fn(char) -> bool + Copy + 'a) -> impl Iterator<Item = &'a str> {
    page.split(separator).filter(|word| word.starts_with("prlock_"))
}

#[test]
fn the_page_describes_each_field_and_no_other() {
    let server = Server::start();
    let page = read("docs/metrics.md");
    let rows = |kind: &str| -> BTreeSet<String> {
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        rows.filter(|(_, rest)| rest.starts_with(kind)).map(|(name, _)| name.to_owned()).collect()
    };
    let mut there: BTreeSet<String> = fields(&server).into_keys().collect();
    there.insert(OLDEST.to_owned());
    let described: BTreeSet<String> = rows("gauge").union(&rows("counter")).cloned().collect();
    assert_eq!(described, there);

    // Wherever else the page names one, in an alert say, it exists.
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    let named: BTreeSet<String> = words_with(&page, is_other).map(str::to_owned).collect();
    let unknown: Vec<_> = named.difference(&there).filter(|name| *name != "prlock_locks").collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn what_the_page_calls_a_counter_never_falls() {
    let server = Server::start();
    let mut conn = server.conn();
    let before = fields(&server);
    conn.ok(("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "t"));
    conn.ok(("PRLOCK.RENEW", "k", "t", "PX", 60_000));
    conn.ok(("CONFIG", "RESETSTAT"));
    let during = fields(&server);
    conn.ok(("PRLOCK.RELEASE", "k", "t"));
    let after = fields(&server);
    for line in read("docs/metrics.md").lines() {
        if let Some((name, _)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | counter |")) {
            assert!(before[name] <= during[name] && during[name] <= after[name], "{name}");
        }
    }
    assert_eq!((during["prlock_renewals"], after["prlock_held"]), (1, 0));
}

#[test]
fn the_exporter_s_script_returns_every_field_and_the_oldest_lock() {
    let server = Server::start();
    let empty = scrape(&server);
    assert_eq!(empty[OLDEST], "0");
    let mut conn = server.conn();
    conn.ok(("PRLOCK.CLAIM", "a", "PX", 60_000, "TOKEN", "t"));
    let held = |server: &Server| scrape(server)[OLDEST].parse::<u64>().expect("a number");
    crate::support::wait_until("the lock to be 20 ms old", crate::support::PATIENCE, || {
        (held(&server) >= 20).then_some(())
    });
    conn.ok(("PRLOCK.CLAIM", "b", "PX", 60_000, "TOKEN", "t"));
    assert!(held(&server) >= 20, "the oldest, not the last");

    let mut scraped = scrape(&server);
    scraped.remove(OLDEST);
    let scraped: BTreeMap<String, u64> =
        scraped.into_iter().map(|(name, value)| (name, value.parse().expect("a number"))).collect();
    assert_eq!(scraped, fields(&server));
    assert_eq!(scraped["prlock_held"], 2);
}

/// With many locks the scrape is cheap: it leaves out what would need a look at each.
#[test]
fn the_exporter_s_script_does_not_look_at_many_locks() {
    let server = Server::start();
    let mut pipe = redis::pipe();
    for number in 0..1_000 {
        pipe.cmd("PRLOCK.CLAIM").arg(number).arg("PX").arg(60_000).ignore();
    }
    pipe.query::<()>(&mut server.conn()).expect("claim");
    assert!(scrape(&server).contains_key(OLDEST));
    server.conn().ok(("PRLOCK.CLAIM", "one more", "PX", 60_000));
    let scraped = scrape(&server);
    assert!(!scraped.contains_key(OLDEST));
    assert_eq!(scraped["prlock_held"], "1001");
}

/// On a replica, and with no more rights than the page says.
#[test]
fn the_exporter_s_script_needs_few_rights_and_runs_on_a_replica() {
    let server = Server::start();
    server.conn().ok(("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "t"));
    server.conn().ok(("ACL", "SETUSER", "exporter", "on", ">pw", "%R~*", "+info", "+eval", "+prlock.list"));
    let settings = crate::support::Conn::resp2().set_username("exporter").set_password("pw");
    let reply = server.conn_with(settings).call(("EVAL", read("examples/grafana/prlock.lua"), 0, 0));
    assert!(matches!(&reply, Ok(Value::Array(items)) if !items.is_empty()), "{reply:?}");

    let replica = server.replica();
    let scraped = scrape(&replica);
    assert_eq!((scraped["prlock_held"].as_str(), scraped["prlock_claims_granted"].as_str()), ("1", "0"));
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let server = Server::start();
    let mut there: BTreeSet<String> = fields(&server).into_keys().collect();
    there.insert(OLDEST.to_owned());
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("examples/grafana/prlock.json")).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut asked = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        for target in panel["targets"].as_array().expect("targets") {
            let expr = target["expr"].as_str().expect("an expression");
            let names: Vec<_> = expr.split('"').filter(|part| part.starts_with("prlock_")).collect();
            assert_eq!(names.len(), 1, "{title}: {expr}");
            assert!(there.contains(names[0]), "{title}: there is no {}", names[0]);
            assert!(expr.contains("redis_script_values{key=") && expr.contains("instance=~\"$instance\""), "{expr}");
            assert_eq!(expr.matches('(').count(), expr.matches(')').count(), "{expr}");
            asked.insert(names[0].to_owned());
        }
        let place = |name: &str| panel["gridPos"][name].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{title} is too far right");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "{title} covers another panel");
            }
        }
    }
    there.remove("prlock_last_fence");
    assert_eq!(asked, there, "everything but the last fence is worth a line");
}
