//! What the server says about the commands: COMMAND INFO, DOCS, GETKEYS, key specs and tips. CASES 62 and 64, the part
//! without a cluster.

use std::collections::BTreeMap;

use crate::support::{PATIENCE, Server, Value, bytes, cmd, int, items, map, text, wait_until};

/// A command as SPEC.md has it.
struct Row {
    name: &'static str,
    arity: i64,
    /// In the order of the alphabet, without `module`.
    flags: &'static [&'static str],
    /// What is done with the key, in the order of the alphabet; none for a command without a key.
    key: &'static [&'static str],
    tips: &'static [&'static str],
    /// The grammar behind the name, as SPEC.md writes it.
    grammar: &'static str,
}

const ROWS: [Row; 7] = [
    Row {
        name: "claim",
        arity: -4,
        flags: &["blocking", "denyoom", "write"],
        key: &["RW", "access", "update"],
        tips: &["nondeterministic_output"],
        grammar: "key EX seconds | PX milliseconds [TOKEN token] [HOLDER holder] \
                  [BLOCK milliseconds | STEAL | STEALIF fence] [LINGER milliseconds]",
    },
    Row {
        name: "renew",
        arity: -5,
        flags: &["fast", "write"],
        key: &["RW", "access", "update"],
        tips: &[],
        grammar: "key token EX seconds | PX milliseconds [FENCE fence]",
    },
    Row {
        name: "release",
        arity: -3,
        flags: &["fast", "write"],
        key: &["RW", "access", "delete"],
        tips: &[],
        grammar: "key token [FENCE fence]",
    },
    Row {
        name: "info",
        arity: 2,
        flags: &["fast", "readonly"],
        key: &["RO", "access"],
        tips: &["nondeterministic_output"],
        grammar: "key",
    },
    Row {
        name: "list",
        arity: -1,
        flags: &["readonly"],
        key: &[],
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        grammar: "[MATCH pattern] [HOLDER holder] [AFTER key] [COUNT count]",
    },
    Row {
        name: "revoke",
        arity: 2,
        flags: &["write"],
        key: &[],
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        grammar: "holder",
    },
    Row {
        name: "apply",
        arity: 3,
        flags: &["noscript", "write"],
        key: &["RW", "access", "update"],
        tips: &[],
        grammar: "key state",
    },
];

fn words(value: &Value) -> Vec<String> {
    let mut words: Vec<String> = items(value).iter().map(text).collect();
    words.sort();
    words
}

#[test]
fn command_info_is_right() {
    let server = Server::start();
    let mut conn = server.conn();
    for row in ROWS {
        let name = format!("prlock.{}", row.name);
        let info = items(&items(&conn.ok(("COMMAND", "INFO", &name)))[0]);
        assert_eq!(text(&info[0]).to_lowercase(), name);
        assert_eq!(int(&info[1]), row.arity, "{name}");
        let mut flags = words(&info[2]);
        flags.retain(|flag| flag != "module");
        assert_eq!(flags, row.flags, "{name}");
        let place = i64::from(!row.key.is_empty());
        assert_eq!((int(&info[3]), int(&info[4]), int(&info[5])), (place, place, place), "{name}");
        let mut tips: Vec<&str> = row.tips.to_vec();
        tips.sort_unstable();
        assert_eq!(words(&info[7]), tips, "{name}");
        let specs = items(&info[8]);
        assert_eq!(specs.len(), usize::from(!row.key.is_empty()), "{name}");
        for spec in &specs {
            let spec = map(spec);
            assert_eq!(words(&spec["flags"]), row.key, "{name}");
            let begin = map(&spec["begin_search"]);
            assert_eq!((text(&begin["type"]), int(&map(&begin["spec"])["index"])), ("index".to_owned(), 1));
            let find = map(&spec["find_keys"]);
            let range: BTreeMap<String, i64> = map(&find["spec"]).into_iter().map(|(k, v)| (k, int(&v))).collect();
            assert_eq!(text(&find["type"]), "range");
            assert_eq!((range["lastkey"], range["keystep"], range["limit"]), (0, 1, 0));
        }
        assert_eq!(items(&info[9]), [], "{name}: no subcommands");
    }
}

/// An argument of COMMAND DOCS as SPEC.md would write it.
fn grammar(argument: &Value) -> String {
    let argument = map(argument);
    let optional = argument.get("flags").is_some_and(|flags| words(flags).contains(&"optional".to_owned()));
    let name = text(&argument["name"]);
    let plain = match text(&argument["type"]).as_str() {
        "oneof" => items(&argument["arguments"]).iter().map(grammar).collect::<Vec<_>>().join(" | "),
        "pure-token" => text(&argument["token"]),
        _ => {
            // `wait-milliseconds` and its like only have more to say than SPEC.md, which has the option's word beside it.
            let name = name.rsplit('-').next().unwrap_or_default().to_owned();
            argument.get("token").map_or(name.clone(), |token| format!("{} {name}", text(token)))
        }
    };
    if optional { format!("[{plain}]") } else { plain }
}

#[test]
fn command_docs_are_right() {
    let server = Server::start();
    let mut conn = server.conn();
    for row in ROWS {
        let name = format!("prlock.{}", row.name);
        let reply = map(&conn.ok(("COMMAND", "DOCS", &name)));
        assert_eq!(reply.len(), 1, "{name}");
        let docs = map(reply.values().next().expect("one command"));
        assert_eq!(text(&docs["group"]), "module", "{name}");
        assert_eq!(text(&docs["module"]), "prlock", "{name}");
        let (summary, complexity) = (text(&docs["summary"]), text(&docs["complexity"]));
        assert!(summary.ends_with('.') && summary.len() > 20, "{name}: {summary}");
        assert!(complexity.starts_with("O("), "{name}: {complexity}");
        let since = text(&docs["since"]);
        assert_eq!(since.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3, "{name}: {since}");
        let arguments: Vec<String> = items(&docs["arguments"]).iter().map(grammar).collect();
        assert_eq!(arguments.join(" "), row.grammar, "{name}");
        let key = map(&items(&docs["arguments"])[0]);
        if !row.key.is_empty() {
            assert_eq!((text(&key["type"]), int(&key["key_spec_index"])), ("key".to_owned(), 0), "{name}");
        }
    }
    // The table above has every command of the module.
    let listed = items(&conn.ok(("COMMAND", "LIST", "FILTERBY", "MODULE", "prlock")));
    assert_eq!(listed.len(), ROWS.len());
}

/// CASES 62 and 64: the one key of a keyed command, whatever its options; none for LIST and REVOKE.
#[test]
fn getkeys_gives_the_key() {
    let server = Server::start();
    let mut conn = server.conn();
    for line in [
        "PRLOCK.CLAIM k PX 1000",
        "PRLOCK.CLAIM k EX 1 TOKEN a HOLDER b LINGER 5 STEALIF 7",
        "PRLOCK.RENEW k t PX 1000 FENCE 1",
        "PRLOCK.RELEASE k t",
        "PRLOCK.RELEASE k t FENCE 1",
        "PRLOCK.INFO k",
        "PRLOCK.APPLY k s",
    ] {
        let mut words = cmd("COMMAND GETKEYS");
        words.extend(cmd(line));
        let keys = items(&conn.ok(&words[..]));
        assert_eq!(keys.iter().map(bytes).collect::<Vec<_>>(), [b"k"], "{line}");
    }
    for line in ["PRLOCK.LIST MATCH k", "PRLOCK.LIST AFTER k COUNT 3", "PRLOCK.REVOKE k"] {
        let mut words = cmd("COMMAND GETKEYS");
        words.extend(cmd(line));
        assert_eq!(conn.err(&words[..]), "ERR The command has no key arguments", "{line}");
    }
}

/// CASES 64: nothing but the key comes into being, and a command never touches another one.
#[test]
fn there_are_no_helper_keys() {
    let server = Server::start();
    let mut conn = server.conn();
    for option in ["", "STEAL", "LINGER 50000", "HOLDER h", "BLOCK 0"] {
        conn.ok(("FLUSHALL",));
        conn.granted(&format!("PRLOCK.CLAIM k PX 60000 TOKEN t {option}"));
        conn.int("PRLOCK.RENEW k t PX 60000");
        assert_eq!(items(&conn.ok(("KEYS", "*"))).iter().map(bytes).collect::<Vec<_>>(), [b"k"]);
        let waiter = server.waiter(cmd("PRLOCK.CLAIM k PX 60000 BLOCK 0"));
        assert_eq!(conn.int("DBSIZE"), 1);
        waiter.disconnect();
        wait_until("the waiter to be gone", PATIENCE, || (conn.lock_number("k", "waiters") == 0).then_some(()));
        assert_eq!(conn.int("PRLOCK.RELEASE k t"), 1);
        assert_eq!(conn.int("DBSIZE"), 0);
        conn.ok(("FLUSHALL",));
    }
}
