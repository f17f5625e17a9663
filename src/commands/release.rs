//! `PRLOCK.RELEASE key token [FENCE fence]`

use super::error::CommandError;
use super::options::{self, Options, is};
use super::spec::{Command, FENCE, KEY, KeyUse, Page, Spec, TOKEN};
use crate::changes::{find, free};
use crate::server::args::Args;
use crate::server::ctx::Ctx;
use crate::server::key::Kind;
use crate::server::main_thread::state;

/// The command, as the table names it.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"PRLOCK.RELEASE",
        flags: c"write fast",
        acl: c"write fast prlock",
        arity: -3,
        summary: c"Frees a lock, or hands it to the next waiter, if the token still holds it.",
        complexity: c"O(1), plus O(log N) when it frees, with N the number of locks in the database",
        since: c"0.1.0",
        tips: None,
        key: Some(KeyUse::Delete),
        args: &[KEY, TOKEN, FENCE],
        page: Page {
            replies: &[
                "Integer `1`: it was this token's, and is now free or already the next waiter's.",
                "Integer `0`: it was not; nothing changed.",
            ],
            errors: &[
                (CommandError::NotAnInteger, "the fence is not a plain base-10 integer"),
                (CommandError::TokenLength, "an empty or overlong token"),
                (CommandError::WrongType, "the key holds neither a lock nor a string"),
                (CommandError::Syntax, "an unknown or repeated option"),
            ],
            notes: &[
                "If somebody waits, the first of them has the lock before any later command runs: a client that releases \
                 and claims again in one pipeline comes behind those who wait.",
                "Without `FENCE` a release that was delayed or is sent twice could free a newer grant to the same token. \
                 With it, it can't.",
                "On a plain string that equals the token it deletes the key, as the usual compare-and-DEL script does; \
                 with `FENCE` it replies `0`.",
                "It works at `maxmemory`.",
            ],
            examples: &[(
                "Only the token frees the lock, and only once:",
                "127.0.0.1:6379> PRLOCK.CLAIM invoice:10 EX 60 TOKEN one\n\
                 1) \"one\"\n\
                 2) (integer) 1796085061441080\n\
                 127.0.0.1:6379> PRLOCK.RELEASE invoice:10 another\n\
                 (integer) 0\n\
                 127.0.0.1:6379> PRLOCK.RELEASE invoice:10 one FENCE 1796085061441080\n\
                 (integer) 1\n\
                 127.0.0.1:6379> PRLOCK.RELEASE invoice:10 one\n\
                 (integer) 0",
            )],
        },
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        let (token, fence) = match parse(args) {
            Ok(request) => request,
            Err(error) => {
                ctx.redact_from(2, args);
                return Err(error);
            }
        };
        ctx.redact(2);

        let key = find::open(ctx, args.str(1).ok_or(CommandError::Syntax)?);
        let released = match key.kind() {
            Kind::Free => false,
            Kind::Lock(lock) => {
                let is_this = lock.token_is(token) && fence.is_none_or(|fence| lock.fence() == fence);
                if is_this {
                    free::lock(ctx, key, free::Cause::Release);
                }
                is_this
            }
            Kind::String => {
                let is_this = fence.is_none() && key.string_is(ctx, token);
                if is_this {
                    free::string(ctx, key);
                }
                is_this
            }
            Kind::Other => return Err(CommandError::WrongType),
        };
        state(|state| {
            let counter = if released { &mut state.stats.releases } else { &mut state.stats.releases_refused };
            *counter = counter.saturating_add(1);
        });
        ctx.reply_integer(released.into());
        Ok(())
    }
}

/// The token, and the fence if one is named.
fn parse<'a>(args: Args<'a>) -> Result<(&'a [u8], Option<u64>), CommandError> {
    let mut fence = None;
    let mut options = Options::new(args, 3);
    while let Some(word) = options.word() {
        match word {
            word if is(word, "FENCE") => options.value(&mut fence)?,
            _ => return Err(CommandError::Syntax),
        }
    }
    let fence = fence.map(options::fence).transpose()?;
    Ok((options::token(args.bytes(2).unwrap_or_default())?, fence))
}
