//! `PRLOCK.APPLY key state`: how replicas and the AOF get a lock's state, whatever brought it about.
//!
//! It sets what it says and decides nothing, since a replica has neither the primary's clock nor its waiters. Only the
//! primary's stream and a file that is loaded may use it, so that no client can choose a fence or a claim time.

use super::error::CommandError;
use super::spec::{Arg, ArgKind, Command, KEY, KeyUse, Page, Spec};
use crate::changes::apply;
use crate::locks::codec::{self, Said};
use crate::server::args::Args;
use crate::server::ctx::Ctx;

/// The command, as the table names it.
pub struct Apply;

impl Command for Apply {
    const SPEC: Spec = Spec {
        name: super::APPLY,
        flags: c"write deny-script",
        acl: c"write fast dangerous admin prlock",
        arity: 3,
        summary: c"Internal: sets a lock's state, on replicas and while an AOF is loaded.",
        complexity: c"O(log N) with N the number of locks in the database",
        since: c"0.1.0",
        tips: None,
        key: Some(KeyUse::Update),
        args: &[KEY, Arg::plain(c"state", ArgKind::String).about(c"The lock's state as bytes.")],
        page: Page {
            replies: &["A client gets an error, always."],
            errors: &[(CommandError::Internal, "a client has sent it")],
            notes: &[
                "It is what a replica and the append-only file get for each change of a lock that is not its end, so \
                      that they hold the same token, fence, holder, deadline and claim time. Only the primary's stream and a \
                      file that is being loaded may use it: no client can choose a fence or a claim time.",
            ],
            examples: &[],
        },
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        let state = args.bytes(2).unwrap_or_default();
        ctx.redact(2);
        let flags = ctx.flags();
        if !flags.is_loading() && !flags.is_replicated() {
            return Err(CommandError::Internal);
        }
        let said = codec::decode_said(state).ok_or(CommandError::Broken)?;
        let key = ctx.open(args.str(1).ok_or(CommandError::Syntax)?);
        match said {
            Said::Lock(decoded) => apply::lock(ctx, key, &decoded)?,
            Said::Gone => apply::gone(ctx, key),
            Said::Deadline(at_ms) => apply::deadline(ctx, key, at_ms),
        }
        ctx.reply_integer(1);
        Ok(())
    }
}
