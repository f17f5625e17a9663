//! The pages tell the truth: every session with redis-cli that they show is carried out, and what comes back is what they
//! say.
//!
//! A block that is marked `redis` is a session. Each of its commands stands behind a prompt, which is redis-cli's own or,
//! where several clients play together, the client's name; the lines below it are its reply. A command without a reply has
//! to wait, and `# NAME now gets:` comes before what it gets in the end. A block marked `sh` has commands for a shell,
//! each on a line or, where it feeds redis-cli by `<<'END'`, the whole block one command: the commands of the page's sessions
//! once more, ready to be pasted. `...` in a reply stands
//! for lines left out, and at the end of a line for its rest. Behind the mark, `since=7.2` leaves a session out on Redis 7.0,
//! and `replica` gives its server a replica.

mod makefile;
mod page;
mod talk;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{Builder, PATIENCE, Server, Value, server_kind, wait_until};
use makefile::{Call, Makefile};
use page::{Block, Kind, Page};
use talk::Talk;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md, CHANGELOG.md, docs/*.md, and the README.md of each example.
fn pages() -> Vec<Page> {
    let entries = |folder: &str| {
        let folder = std::fs::read_dir(root().join(folder)).expect("read the folder");
        folder.map(|entry| entry.expect("read the folder").path())
    };
    let examples = entries("examples").map(|folder| folder.join("README.md")).filter(|page| page.exists());
    let mut paths: Vec<PathBuf> = entries("docs").chain(examples).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.splice(0..0, ["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    paths.iter().map(|path| Page::read(path)).collect()
}

fn is_for_this_server(block: &Block) -> bool {
    !block.needs_7_2 || server_kind().at_least_7_2()
}

/// Every session, in its page's order, one server for each page.
#[test]
fn sessions_go_as_the_pages_say() {
    let mut commands = 0;
    for page in pages() {
        let server = Server::start();
        let mut talk = Talk::with(&server);
        for block in page.blocks_of(Kind::Session).filter(|block| is_for_this_server(block)) {
            let _replica = block.needs_replica.then(|| server.replica());
            commands += talk.hold(&page, block);
        }
    }
    assert!(commands > 0, "no session was found");
}

/// What can be pasted is what the sessions of the page show, in the same order.
#[test]
fn what_is_pasted_is_what_is_shown() {
    for page in pages() {
        let pasted: Vec<&str> = page.blocks_of(Kind::Shell).filter_map(Block::fed).flatten().collect();
        if pasted.is_empty() {
            continue;
        }
        let shown: Vec<String> = page.blocks_of(Kind::Session).flat_map(page::commands).collect();
        assert_eq!(pasted, shown, "{}", page.name);
    }
}

/// Lines for a shell: those with redis-cli are run against a server.
#[test]
fn lines_for_a_shell_work() {
    for page in pages() {
        let server = Server::start();
        for command in page.blocks_of(Kind::Shell).flat_map(Block::shell_commands) {
            if command.contains("redis-cli ") {
                talk::run_in_shell(&server, &command);
            }
        }
    }
}

/// Whatever a page has make do, `.ci/run` or `scripts/test-pages` has it do too; to build comes before each test.
#[test]
fn what_make_is_said_to_do_is_done_for_every_change() {
    let scripts = [".ci/run", "scripts/test-pages"].map(read);
    let done: BTreeSet<&str> = scripts.iter().flat_map(|script| targets(script)).chain(["build"]).collect();
    let pages: Vec<String> = pages().iter().map(|page| read(&page.path)).collect();
    // In a line of its own, or as a name in a sentence.
    let said: BTreeSet<&str> = pages.iter().flat_map(|page| makefile::calls(page)).map(|call| call.target).collect();
    assert!(said.contains("run") && said.contains("test"), "{said:?}");
    assert!(said.is_subset(&done), "said but not done: {:?}", said.difference(&done));
}

/// What a script has make do.
fn targets(script: &str) -> impl Iterator<Item = &str> {
    let lines = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split("make ").skip(1)).filter_map(|rest| rest.split_whitespace().next())
}

/// Variables that are given to make do something, wherever a page, a comment or make's own help gives one: the target's
/// recipe reads it, and the value is one that what it runs knows.
#[test]
fn what_make_is_given_is_read() {
    let text = read("Makefile");
    let makefile = Makefile::parse(&text);
    let mut texts: Vec<String> = pages().iter().map(|page| read(&page.path)).collect();
    texts.extend(files(&["scripts", ".ci", "benches", "tests", "src"]).iter().map(read));
    let mut calls = Makefile::helps(&text);
    calls.extend(texts.iter().flat_map(|text| makefile::calls(text)));

    let mut wrong = BTreeSet::new();
    for Call { target, variables } in &calls {
        for (name, value) in variables {
            let is_read = makefile.recipe(target).is_some_and(|recipe| recipe.contains(&format!("$({name})")));
            if !is_read || !value.split(',').all(|value| is_known(target, name, value)) {
                wrong.insert(format!("make {target} {name}={value}"));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new());
    let given: BTreeSet<&str> = calls.iter().flat_map(|call| &call.variables).map(|(name, _)| *name).collect();
    assert!(given.contains("PORT") && given.contains("PART") && given.contains("WRITE"), "{given:?}");

    // What a recipe hands on by the environment, its program asks for.
    let programs: String = files(&["benches", "tests"]).iter().map(read).collect();
    let unasked = |name: &&str| !programs.contains(&format!("\"{name}\""));
    let unasked: Vec<&str> = makefile.environment("bench").into_iter().filter(unasked).collect();
    assert_eq!(unasked, Vec::<&str>::new());
}

/// Whether a variable of make may have this value.
fn is_known(target: &str, name: &str, value: &str) -> bool {
    let quoted = |path: &str| read(path).contains(&format!("\"{value}\""));
    match (target, name) {
        // A script's own, which stands between quotes.
        _ if value.is_empty() => true,
        (_, "SERVER" | "ON") => ["redis7", "redis8", "valkey8", "valkey9"].contains(&value),
        (_, "LANGUAGES") => read("scripts/test-clients").contains(&format!("\ntest_{value}() {{")),
        ("prove", "PART") => quoted("tests/prove/main.rs"),
        ("bench", "ONLY") => quoted("benches/compare/parts/mod.rs"),
        (_, "ONLY") => files(&["tests/suite"])
            .iter()
            .any(|path| path.to_string_lossy().contains(value) || read(path).contains(&format!("fn {value}"))),
        _ => value.parse::<u32>().is_ok(),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All texts in these folders, and in those below.
fn files(folders: &[&str]) -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("read the folder").path();
            match path.is_dir() {
                true => open.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|path| std::fs::read_to_string(path).is_ok());
    files
}

/// What docs/operations.md says of taking the module out: drained and rewritten, the files load without it.
#[test]
fn the_module_can_be_taken_out_again() {
    let server = Server::builder().aof().start();
    let mut conn = server.conn();
    conn.ok(("SET", "plain", "x"));
    conn.granted("PRLOCK.CLAIM k PX 60000 TOKEN t");
    conn.granted("PRLOCK.CLAIM other PX 60000 HOLDER h");
    conn.int("PRLOCK.RELEASE k t");
    conn.int("PRLOCK.REVOKE h");
    assert_eq!(server.info_number("prlock_held"), 0);
    conn.ok(("BGREWRITEAOF",));
    wait_until("the rewrite to end", PATIENCE, || {
        let is_done = |field| server.info_number(field) == 0;
        (is_done("aof_rewrite_in_progress") && is_done("aof_rewrite_scheduled")).then_some(())
    });
    server.restart_with(Builder::without_module);
    assert_eq!(server.conn().ok(("GET", "plain")), Value::BulkString(b"x".to_vec()));
}

/// Every link to a file of the project leads to one.
#[test]
fn links_lead_somewhere() {
    let mut broken = BTreeSet::new();
    for page in pages() {
        let folder = page.path.parent().expect("a page lies in a folder");
        for link in page.links() {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !folder.join(file).exists() {
                broken.insert(format!("{}: {link}", page.name));
            }
        }
    }
    assert_eq!(broken, BTreeSet::new());
}
