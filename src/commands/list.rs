//! `PRLOCK.LIST [MATCH pattern] [HOLDER holder] [AFTER key] [COUNT count]`

use super::error::CommandError;
use super::info;
use super::options::{self, Options, is};
use super::spec::{Arg, ArgKind, Command, Page, Spec};
use crate::changes::find;
use crate::locks::glob::Glob;
use crate::locks::registry::Walk;
use crate::server::acl::User;
use crate::server::args::Args;
use crate::server::clock;
use crate::server::ctx::Ctx;
use crate::server::main_thread::state;

/// The command, as the table names it.
pub struct List;

/// How many locks are taken from the registry at a time.
const STRIDE: usize = 128;

impl Command for List {
    const SPEC: Spec = Spec {
        name: c"PRLOCK.LIST",
        flags: c"readonly",
        acl: c"read slow prlock",
        arity: -1,
        summary: c"Lists the locks of the selected database on this node, in the order of their keys.",
        complexity:
            c"O(log N + M) with N the number of locks in the database and M the number walked over: those that start \
                      with the literal head of MATCH, or belong to HOLDER",
        since: c"0.1.0",
        tips: Some(c"nondeterministic_output request_policy:all_shards response_policy:special"),
        key: None,
        args: &[
            Arg::after(c"MATCH", c"pattern", ArgKind::Pattern)
                .optional()
                .about(c"Only keys that match the pattern, as KEYS matches."),
            Arg::after(c"HOLDER", c"holder", ArgKind::String)
                .optional()
                .about(c"Only locks whose holder label is exactly these bytes."),
            Arg::after(c"AFTER", c"key", ArgKind::String)
                .optional()
                .about(c"Only keys behind this one: the next page."),
            Arg::after(c"COUNT", c"count", ArgKind::Integer).optional().about(c"At most so many; without it, all."),
        ],
        page: Page {
            replies: &[
                "Array of maps as PRLOCK.INFO gives them, ordered by the bytes of the key; empty if there is none.",
            ],
            errors: &[
                (CommandError::NotAnInteger, "the count is not a plain base-10 integer"),
                (CommandError::HolderLength, "an overlong holder label"),
                (CommandError::Syntax, "an unknown or repeated option, or a count below 1"),
            ],
            notes: &[
                "It looks into the module's own index and not into the keyspace: the literal head of `MATCH` (`job:` in \
                 `job:*:a`) and `HOLDER` are looked up.",
                "To page, give the last key of a page as `AFTER` of the next. Every lock that lives through all the pages \
                 appears exactly once.",
                "A caller sees only locks whose key its ACL lets it read. A lock past its deadline is left out at once.",
                "It names the locks of the selected database on this node. In Cluster mode, ask every primary.",
                "After `RENAME`, `MOVE` or `RESTORE` of a lock the first list finds it under its new name, which costs that \
                 one list, in the worst case, a walk over the keyspace.",
            ],
            examples: &[(
                "The locks of one holder, one at a time:",
                "127.0.0.1:6379> PRLOCK.CLAIM job:1 EX 60 TOKEN one HOLDER worker-1\n\
                     1) \"one\"\n\
                     2) (integer) 1796085061441100\n\
                     127.0.0.1:6379> PRLOCK.CLAIM job:2 EX 60 TOKEN two HOLDER worker-1\n\
                     1) \"two\"\n\
                     2) (integer) 1796085061441101\n\
                     127.0.0.1:6379> PRLOCK.LIST MATCH job:* HOLDER worker-1 COUNT 1\n\
                     1)  1) \"key\"\n    \
                         2) \"job:1\"\n    \
                         3) \"holder\"\n    \
                         4) \"worker-1\"\n    \
                         5) \"fence\"\n    \
                         6) (integer) 1796085061441100\n\
                     ...\n\
                     127.0.0.1:6379> PRLOCK.LIST MATCH job:* HOLDER worker-1 COUNT 1 AFTER job:1\n\
                     1)  1) \"key\"\n    \
                         2) \"job:2\"\n\
                     ...\n\
                     127.0.0.1:6379> PRLOCK.LIST MATCH job:* HOLDER worker-1 COUNT 1 AFTER job:2\n\
                     (empty array)",
            )],
        },
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        let request = Request::parse(args)?;
        ctx.reply_array_postponed();
        let listed = request.list(ctx);
        ctx.reply_array_length(listed);
        Ok(())
    }
}

struct Request<'a> {
    pattern: Option<&'a [u8]>,
    holder: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let (mut pattern, mut holder, mut after, mut count) = (None, None, None, None);
        let mut options = Options::new(args, 1);
        while let Some(word) = options.word() {
            match word {
                word if is(word, "MATCH") => options.value(&mut pattern)?,
                word if is(word, "HOLDER") => options.value(&mut holder)?,
                word if is(word, "AFTER") => options.value(&mut after)?,
                word if is(word, "COUNT") => options.value(&mut count)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        let count = match count {
            None => usize::MAX,
            // As in SCAN, a count below 1 is a syntax error.
            Some(count) => {
                usize::try_from(options::integer(count)?).ok().filter(|count| *count > 0).ok_or(CommandError::Syntax)?
            }
        };
        Ok(Self {
            pattern: pattern.map(|value| value.bytes),
            holder: holder.map(|value| options::holder(value.bytes)).transpose()?,
            after: after.map(|value| value.bytes),
            count,
        })
    }

    /// Replies the locks, and returns how many.
    fn list(&self, ctx: Ctx<'_>) -> usize {
        let Some(user) = User::of(ctx) else { return 0 };
        find::settle();
        let (db, now_ms) = (ctx.db(), clock::command().ms());
        let glob = self.pattern.map(Glob::new);
        let head = glob.map_or_else(Vec::new, |glob| glob.literal_head());
        // Of all keys with this head, the one that is just the head comes first.
        let most = if glob.is_some_and(|glob| glob.is_literal()) { 1 } else { STRIDE };
        let mut after: Option<Vec<u8>> = self.after.map(<[u8]>::to_vec);
        let mut listed = 0usize;
        loop {
            let walk = Walk { after: after.as_deref(), head: &head, holder: self.holder };
            // Taken out first: looking a key up may find it past its deadline and take it out of the registry.
            let stride = most.min(self.count.saturating_sub(listed)).max(1);
            let locks = state(|state| state.registry.walk(db, &walk, stride));
            let is_last = locks.len() < stride || most == 1;
            let last = locks.last().map(|lock| lock.key().to_vec());
            for lock in locks {
                if glob.is_some_and(|glob| !glob.matches(lock.key())) {
                    continue;
                }
                let Some(expires_at_ms) = find::verify(ctx, &lock, Some(&user)) else { continue };
                info::reply(ctx, db, &lock, expires_at_ms, now_ms);
                listed = listed.saturating_add(1);
                if listed >= self.count {
                    return listed;
                }
            }
            if is_last || last.is_none() {
                return listed;
            }
            after = last;
        }
    }
}
