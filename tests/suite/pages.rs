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

mod page;
mod talk;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{Builder, PATIENCE, Server, Value, server_kind, wait_until};
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
    let scripts = [".ci/run", "scripts/test-pages"].map(|path| std::fs::read_to_string(root().join(path)).expect(path));
    let done: BTreeSet<&str> = scripts.iter().flat_map(|script| targets(script)).chain(["build"]).collect();
    let pages: Vec<String> =
        pages().iter().map(|page| std::fs::read_to_string(&page.path).expect("read a page")).collect();
    // In a line of its own, or as a name in a sentence.
    let said: BTreeSet<&str> = pages
        .iter()
        .flat_map(|page| page.split(['`', '\n']))
        .filter_map(|piece| piece.strip_prefix("make "))
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    assert!(said.contains("run") && said.contains("test"), "{said:?}");
    assert!(said.is_subset(&done), "said but not done: {:?}", said.difference(&done));
}

/// What a script has make do.
fn targets(script: &str) -> impl Iterator<Item = &str> {
    let lines = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split("make ").skip(1)).filter_map(|rest| rest.split_whitespace().next())
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
