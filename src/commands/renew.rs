//! `PRLOCK.RENEW key token EX seconds | PX milliseconds [FENCE fence]`

use super::error::CommandError;
use super::options::{self, Options, Ttl, is};
use super::spec::{Command, FENCE, KEY, KeyUse, Page, Spec, TOKEN, TTL};
use crate::changes::{find, renew};
use crate::server::args::Args;
use crate::server::clock;
use crate::server::config::MAX_TTL_MS_DEFAULT;
use crate::server::ctx::Ctx;
use crate::server::key::Kind;
use crate::server::main_thread::state;

/// The command, as the table names it.
pub struct Renew;

const NAME: &str = "prlock.renew";

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: c"PRLOCK.RENEW",
        flags: c"write fast",
        acl: c"write fast prlock",
        arity: -5,
        summary: c"Sets a lock's deadline anew, if the token still holds it.",
        complexity: c"O(1)",
        since: c"0.1.0",
        tips: None,
        key: Some(KeyUse::Update),
        args: &[KEY, TOKEN, TTL, FENCE],
        page: Page {
            replies: &[
                "Integer `1`: the lock is this token's, and its deadline is now exactly that far away.",
                "Integer `0`: it is not, or not any more; nothing changed.",
            ],
            errors: &[
                (CommandError::NotAnInteger, "the time or the fence is not a plain base-10 integer"),
                (CommandError::InvalidExpire(NAME), "the time is 0, negative, or beyond what the server can store"),
                (CommandError::AboveCap(NAME, MAX_TTL_MS_DEFAULT), "the time is above the setting `prlock.max-ttl-ms`"),
                (CommandError::TokenLength, "an empty or overlong token"),
                (CommandError::WrongType, "the key holds neither a lock nor a string"),
                (CommandError::Syntax, "an unknown or repeated option, or both or neither of `EX` and `PX`"),
            ],
            notes: &[
                "The new deadline replaces the old one: it is neither added to what is left, nor is a longer rest kept.",
                "A lock that is gone is never made again. Renew early enough, at a third of the deadline say, and stop the \
                 work on `0`. An error is not a `0`: the server may be loading, out of memory or read-only, while the lock \
                 lives on until its deadline.",
                "On a plain string that equals the token it sets the deadline, as the usual compare-and-PEXPIRE script \
                 does; with `FENCE` it replies `0`, since a string has no fence.",
                "It works at `maxmemory`.",
                "A lock with `LINGER` is bound to the connection of its last renewal from then on.",
            ],
            examples: &[(
                "Two renewals in time, and one after the release:",
                "127.0.0.1:6379> PRLOCK.CLAIM invoice:9 PX 20000 TOKEN one\n\
                 1) \"one\"\n\
                 2) (integer) 1796085061441079\n\
                 127.0.0.1:6379> PRLOCK.RENEW invoice:9 one PX 60000\n\
                 (integer) 1\n\
                 127.0.0.1:6379> PTTL invoice:9\n\
                 (integer) 59994\n\
                 127.0.0.1:6379> PRLOCK.RENEW invoice:9 one PX 60000 FENCE 1796085061441079\n\
                 (integer) 1\n\
                 127.0.0.1:6379> PRLOCK.RELEASE invoice:9 one\n\
                 (integer) 1\n\
                 127.0.0.1:6379> PRLOCK.RENEW invoice:9 one PX 60000\n\
                 (integer) 0",
            )],
        },
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        let request = match Request::parse(args) {
            Ok(request) => request,
            Err(error) => {
                ctx.redact_from(2, args);
                return Err(error);
            }
        };
        ctx.redact(2);
        let key = find::open(ctx, args.str(1).ok_or(CommandError::Syntax)?);
        let renewed = match key.kind() {
            Kind::Free => false,
            Kind::Lock(lock) => {
                let is_this = lock.token_is(request.token) && request.fence.is_none_or(|fence| lock.fence() == fence);
                if is_this {
                    renew::lock(ctx, key, clock::command().ms(), request.ttl_ms);
                }
                is_this
            }
            Kind::String => {
                let is_this = request.fence.is_none() && key.string_is(ctx, request.token);
                if is_this {
                    renew::string(ctx, key, clock::command().ms(), request.ttl_ms);
                }
                is_this
            }
            Kind::Other => return Err(CommandError::WrongType),
        };
        state(|state| {
            let counter = if renewed { &mut state.stats.renewals } else { &mut state.stats.renewals_refused };
            *counter = counter.saturating_add(1);
        });
        ctx.reply_integer(renewed.into());
        Ok(())
    }
}

struct Request<'a> {
    token: &'a [u8],
    ttl_ms: i64,
    fence: Option<u64>,
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let (mut ex, mut px, mut fence) = (None, None, None);
        let mut options = Options::new(args, 3);
        while let Some(word) = options.word() {
            match word {
                word if is(word, "PX") => options.value(&mut px)?,
                word if is(word, "EX") => options.value(&mut ex)?,
                word if is(word, "FENCE") => options.value(&mut fence)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        let ttl = Ttl::one_of(ex, px)?;
        let fence = fence.map(options::fence).transpose()?;
        let ttl_ms = ttl.ms(NAME)?;
        Ok(Self { token: options::token(args.bytes(2).unwrap_or_default())?, ttl_ms, fence })
    }
}
