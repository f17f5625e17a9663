//! What a command says about itself: the one source of registration, COMMAND DOCS, key specs, tips and ACL categories.

use std::ffi::{CStr, c_int};

use super::error::CommandError;
use crate::server::args::Args;
use crate::server::ctx::Ctx;

/// A command: its row in the table and its body.
pub trait Command {
    const SPEC: Spec;

    /// Runs it. An error is replied as it is, and then nothing has changed.
    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError>;
}

/// A row of the command table.
#[derive(Debug)]
pub struct Spec {
    /// In capitals, as users write it.
    pub name: &'static CStr,
    /// The server's own words for what a command does (`RM_CreateCommand`).
    pub flags: &'static CStr,
    /// The full list of ACL categories, for servers that have them for modules.
    pub acl: &'static CStr,
    /// Number of arguments with the command's name; negative: at least so many.
    pub arity: c_int,
    /// One sentence.
    pub summary: &'static CStr,
    /// How its time grows, and what the letters mean.
    pub complexity: &'static CStr,
    /// The version of the module that had it first.
    pub since: &'static CStr,
    /// Hints for cluster clients (`COMMAND INFO`), with spaces between.
    pub tips: Option<&'static CStr>,
    /// What it does with the key at 1; `None` for a command without a key.
    pub key: Option<KeyUse>,
    /// Its arguments in the order in which users write them.
    pub args: &'static [Arg],
    /// The rest of its part of `docs/commands.md`.
    #[cfg_attr(not(test), allow(dead_code, reason = "the page is written by a test; see pages.rs"))]
    pub page: Page,
}

/// What `docs/commands.md` says of a command beside its row in the table, in Markdown.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "the page is written by a test; see pages.rs"))]
pub struct Page {
    /// The possible replies.
    pub replies: &'static [&'static str],
    /// The module's own errors, each with its cause.
    pub errors: &'static [(CommandError, &'static str)],
    /// What else there is to know, one paragraph each.
    pub notes: &'static [&'static str],
    /// Sessions with redis-cli, each behind a sentence that says what it shows. They are carried out by a test.
    pub examples: &'static [(&'static str, &'static str)],
}

/// How a command uses its key.
#[derive(Debug, Clone, Copy)]
pub enum KeyUse {
    Read,
    Update,
    Delete,
}

/// One argument as COMMAND DOCS describes it.
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    /// What the documentation calls it.
    pub name: &'static CStr,
    /// The word before it, if it is an option.
    pub token: Option<&'static CStr>,
    /// What may stand there.
    pub kind: ArgKind,
    /// It may be left out.
    pub optional: bool,
    /// What it is for, in a few words.
    pub about: Option<&'static CStr>,
}

/// What an argument is, in the words of COMMAND DOCS.
#[derive(Debug, Clone, Copy)]
pub enum ArgKind {
    Key,
    String,
    Integer,
    Pattern,
    /// The option's word alone.
    Word,
    OneOf(&'static [Arg]),
}

impl Arg {
    /// An argument that stands by itself.
    pub const fn plain(name: &'static CStr, kind: ArgKind) -> Self {
        Self { name, token: None, kind, optional: false, about: None }
    }

    /// An argument behind a word.
    pub const fn after(token: &'static CStr, name: &'static CStr, kind: ArgKind) -> Self {
        Self { name, token: Some(token), kind, optional: false, about: None }
    }

    /// The same, and it may be left out.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// The same, with what it is for.
    pub const fn about(self, about: &'static CStr) -> Self {
        Self { about: Some(about), ..self }
    }
}

/// `EX seconds | PX milliseconds`, as CLAIM and RENEW take it.
pub const TTL: Arg = Arg::plain(
    c"expiration",
    ArgKind::OneOf(&[
        Arg::after(c"EX", c"seconds", ArgKind::Integer).about(c"The deadline, this many seconds from now."),
        Arg::after(c"PX", c"milliseconds", ArgKind::Integer).about(c"The same in milliseconds."),
    ]),
);
/// The key of every keyed command.
pub const KEY: Arg = Arg::plain(c"key", ArgKind::Key).about(c"The lock's name.");
/// The fence that RENEW and RELEASE may name.
pub const FENCE: Arg = Arg::after(c"FENCE", c"fence", ArgKind::Integer)
    .optional()
    .about(c"Only if the lock is still the grant with this fence.");
/// The token that RENEW and RELEASE must show.
pub const TOKEN: Arg = Arg::plain(c"token", ArgKind::String).about(c"The token that CLAIM has replied.");
