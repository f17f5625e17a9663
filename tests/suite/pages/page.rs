//! A page of Markdown, as far as the tests look into it.

use std::path::{Path, PathBuf};

pub struct Page {
    pub path: PathBuf,
    /// The file's name.
    pub name: String,
    text: String,
    blocks: Vec<Block>,
}

/// What a block of code is, by the mark behind its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Session,
    Shell,
    Other,
}

/// A block of code.
pub struct Block {
    kind: Kind,
    /// Left out on Redis 7.0.
    pub needs_7_2: bool,
    pub needs_replica: bool,
    lines: Vec<String>,
    /// The number of its first line in the page.
    pub first_line: usize,
}

impl Block {
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// What a command of a shell is fed with, line by line, if it is.
    pub fn fed(&self) -> Option<Vec<&str>> {
        let (last, lines) = self.lines.split_last()?;
        let (first, fed) = lines.split_first()?;
        (first.ends_with("<<'END'") && last == "END").then(|| fed.iter().map(String::as_str).collect())
    }

    /// Commands for a shell, without their comments.
    pub fn shell_commands(&self) -> Vec<String> {
        if self.fed().is_some() {
            return vec![self.lines.join("\n")];
        }
        self.lines().map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned()).collect()
    }
}

impl Page {
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let blocks = blocks(&text);
        Self { path: path.to_owned(), name, text, blocks }
    }

    pub fn blocks_of(&self, kind: Kind) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.kind == kind)
    }

    /// The targets of all links that are no web addresses.
    pub fn links(&self) -> Vec<&str> {
        let targets = self.text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(|(target, _)| target).filter(|target| !target.contains("://")).collect()
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(mark), None) => open = Some(start(mark, index + 2)),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block of code has no end");
    blocks
}

fn start(mark: &str, first_line: usize) -> Block {
    let words: Vec<&str> = mark.split_whitespace().collect();
    let kind = match words.first().copied() {
        Some("redis") => Kind::Session,
        Some("sh") => Kind::Shell,
        _ => Kind::Other,
    };
    let has = |word| words.contains(&word);
    Block { kind, needs_7_2: has("since=7.2"), needs_replica: has("replica"), lines: Vec::new(), first_line }
}

/// A line of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A client's name, or redis-cli's own prompt, and what is typed.
    Command {
        client: &'a str,
        typed: &'a str,
    },
    /// What follows is the reply that this client has waited for.
    Late {
        client: &'a str,
    },
    Reply(&'a str),
}

/// What a line of a session is.
pub fn line(line: &str) -> Line<'_> {
    if let Some(client) = line.strip_prefix("# ").and_then(|rest| rest.strip_suffix(" now gets:")) {
        return Line::Late { client };
    }
    match line.split_once("> ") {
        Some((client, typed)) if !client.is_empty() && !client.contains([' ', '"', '(']) => {
            Line::Command { client, typed }
        }
        _ => Line::Reply(line),
    }
}

/// What is typed in a session.
pub fn commands(block: &Block) -> Vec<String> {
    let commands = block.lines().filter_map(|text| match line(text) {
        Line::Command { typed, .. } => Some(typed.to_owned()),
        _ => None,
    });
    commands.collect()
}
