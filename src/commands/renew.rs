//! `PRLOCK.RENEW key token EX seconds | PX milliseconds [FENCE fence]`

use super::error::CommandError;
use super::options::{self, Options, Ttl, is};
use super::spec::{Arg, ArgKind, Command, FENCE, KEY, KeyUse, Spec, TTL};
use crate::changes::{self, renew};
use crate::server::args::Args;
use crate::server::clock;
use crate::server::ctx::Ctx;
use crate::server::key::Kind;
use crate::server::main_thread::state;

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
        args: &[KEY, Arg::plain(c"token", ArgKind::String), TTL, FENCE],
        replies: &[
            "Integer 1: the lock is this token's, and its deadline is exactly that far away.",
            "Integer 0: it is not (any more); nothing changed.",
        ],
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
        let key = ctx.open(args.str(1).ok_or(CommandError::Syntax)?, true);
        let expires_at_ms = request.now.ms().saturating_add(request.ttl_ms);
        let renewed = match key.kind() {
            Kind::Free => false,
            Kind::Lock(lock) => {
                let (key, lock) = changes::find::adopt(ctx, key, lock);
                let is_this = lock.token_is(request.token) && request.fence.is_none_or(|fence| lock.fence() == fence);
                if is_this {
                    renew::lock(ctx, key, &lock, request.now.ms(), expires_at_ms);
                }
                is_this
            }
            Kind::String => {
                let is_this = request.fence.is_none() && ctx.string_is(key.name(), request.token);
                if is_this {
                    renew::string(ctx, key, expires_at_ms);
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
    now: clock::Now,
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
        let now = clock::command();
        let ttl_ms = ttl.ms(now.ms(), NAME)?;
        Ok(Self { token: options::token(args.bytes(2).unwrap_or_default())?, ttl_ms, fence, now })
    }
}
