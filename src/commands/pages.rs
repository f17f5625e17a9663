//! `docs/commands.md`, written from the command table. `make docs` writes it, and the test fails while it is stale.

use std::ffi::CStr;
use std::fmt::{self, Write as _};
use std::path::Path;

use super::COMMANDS;
use super::spec::{Arg, ArgKind, KeyUse, Page, Spec};

const HEAD: &str = "\
# Commands

<!-- Written by `make docs` from the command table in src/commands. Changes belong there. -->

Common to all of them:

- Options come in any order and in any case, each once at most. Times are integers.
- Keys, tokens and holder labels are any bytes.
- Everything is checked before anything is written: a call that returns an error has changed nothing, and neither has one \
that is refused.
- Replies mean the same in RESP2 and RESP3.
- Beside the errors below there are the server's own: a wrong number of arguments, `OOM` at `maxmemory` (only to \
`PRLOCK.CLAIM`), `READONLY` for writes on a replica, `NOPERM`, `LOADING`, `MISCONF`, `NOREPLICAS`, `MASTERDOWN`, and \
`MOVED`, `ASK` or `CLUSTERDOWN` in Cluster mode. None of them says that a lock is lost.

";

fn text(text: &CStr) -> &str {
    text.to_str().expect("the table is ASCII")
}

/// The command and its arguments as one types them.
fn grammar(spec: &Spec) -> String {
    let args = spec.args.iter().map(|arg| if arg.optional { format!("[{}]", word(arg)) } else { word(arg) });
    [text(spec.name).to_owned()].into_iter().chain(args).collect::<Vec<_>>().join(" ")
}

fn word(arg: &Arg) -> String {
    let name = text(arg.name);
    match (arg.kind, arg.token) {
        (ArgKind::OneOf(choices), _) => choices.iter().map(word).collect::<Vec<_>>().join(" | "),
        (ArgKind::Word, Some(token)) => text(token).to_owned(),
        (_, Some(token)) => format!("{} {name}", text(token)),
        (_, None) => name.to_owned(),
    }
}

/// A row for each argument that says what it is for, alternatives one by one.
fn arguments(out: &mut String, args: &[Arg]) -> fmt::Result {
    for arg in args {
        if let ArgKind::OneOf(choices) = arg.kind {
            arguments(out, choices)?;
        } else if let Some(about) = arg.about {
            writeln!(out, "| `{}` | {} |", word(arg), text(about))?;
        }
    }
    Ok(())
}

fn facts(out: &mut String, spec: &Spec) -> fmt::Result {
    let key = match spec.key {
        None => "names no key",
        Some(KeyUse::Read) => "reads its key",
        Some(KeyUse::Update) => "writes its key",
        Some(KeyUse::Delete) => "deletes its key",
    };
    let acl: Vec<String> = text(spec.acl).split(' ').map(|category| format!("`@{category}`")).collect();
    writeln!(out, "- Complexity: {}", text(spec.complexity))?;
    writeln!(out, "- Flags: {}; {key}", text(spec.flags).replace(' ', ", "))?;
    writeln!(out, "- ACL categories: {}", acl.join(", "))?;
    writeln!(out, "- Since: {}\n", text(spec.since))
}

fn part(out: &mut String, spec: &Spec) -> fmt::Result {
    let Page { replies, errors, notes, examples } = &spec.page;
    writeln!(out, "## {}\n\n```\n{}\n```\n\n{}\n", text(spec.name), grammar(spec), text(spec.summary))?;
    if !spec.args.is_empty() {
        writeln!(out, "| argument | what it is for |\n|---|---|")?;
        arguments(out, spec.args)?;
        writeln!(out)?;
    }
    writeln!(out, "Replies:\n")?;
    replies.iter().try_for_each(|reply| writeln!(out, "- {reply}"))?;
    if !notes.is_empty() {
        writeln!(out)?;
    }
    writeln!(out, "{}", notes.join("\n\n"))?;
    for (about, session) in *examples {
        writeln!(out, "\n{about}\n\n```redis\n{session}\n```")?;
    }
    writeln!(out, "\n| error | when |\n|---|---|")?;
    for (error, when) in *errors {
        writeln!(out, "| `{}` | {when} |", text(&error.text()))?;
    }
    writeln!(out)?;
    facts(out, spec)
}

fn page() -> String {
    let mut out = HEAD.to_owned();
    for command in COMMANDS {
        part(&mut out, command.spec).expect("writing into a string cannot fail");
    }
    format!("{}\n", out.trim_end())
}

#[test]
fn docs_of_commands_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let due = page();
    if std::env::var_os("PRLOCK_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("make the folder docs");
        std::fs::write(&path, due).expect("write docs/commands.md");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == due, "docs/commands.md is not what the command table says: run `make docs`");
}

#[test]
fn docs_name_every_argument_and_error() {
    for command in COMMANDS {
        let spec = command.spec;
        let name = text(spec.name);
        let mut rows = String::new();
        arguments(&mut rows, spec.args).expect("writing into a string cannot fail");
        let leaves = |args: &[Arg]| {
            args.iter().map(|arg| if let ArgKind::OneOf(choices) = arg.kind { choices.len() } else { 1 }).sum::<usize>()
        };
        assert_eq!(rows.lines().count(), leaves(spec.args), "{name}: an argument without a word about it");
        assert!(!spec.page.replies.is_empty() && !spec.page.errors.is_empty(), "{name}");
        assert!(spec.name == super::APPLY || !spec.page.examples.is_empty(), "{name}: no example");
    }
}
