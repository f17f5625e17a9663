//! `PRLOCK.CLAIM key EX seconds | PX milliseconds [TOKEN token] [HOLDER holder]
//! [BLOCK milliseconds | STEAL | STEALIF fence] [LINGER milliseconds]`

use std::ffi::c_int;
use std::fmt::Write as _;

use rand::RngExt as _;

use super::error::CommandError;
use super::options::{self, Options, Ttl, is};
use super::spec::{Arg, ArgKind, Command, KEY, KeyUse, Page, Spec, TTL};
use crate::changes::{find, grant, wake};
use crate::locks::Bytes;
use crate::locks::lock::Lock;
use crate::locks::queue::Terms;
use crate::server::acl;
use crate::server::args::Args;
use crate::server::clock;
use crate::server::config::MAX_TTL_MS_DEFAULT;
use crate::server::ctx::Ctx;
use crate::server::key::{Key, Kind};
use crate::server::main_thread::state;
use crate::server::string::{OwnedStr, Str};

/// The command, as the table names it.
pub struct Claim;

/// The shortest claim: its name, the key, and the deadline in two words.
pub const WORDS_MIN: usize = 4;

const NAME: &str = "prlock.claim";

impl Command for Claim {
    const SPEC: Spec = Spec {
        name: super::CLAIM,
        flags: c"write deny-oom blocking",
        acl: c"write slow blocking prlock",
        arity: -(WORDS_MIN as c_int),
        summary: c"Claims a lock, or waits for it.",
        complexity: c"O(log N) with N the number of locks in the database",
        since: c"0.1.0",
        tips: Some(c"nondeterministic_output"),
        key: Some(KeyUse::Update),
        args: &[
            KEY,
            TTL,
            Arg::after(c"TOKEN", c"token", ArgKind::String)
                .optional()
                .about(c"The secret that renews and releases, 1 to 512 bytes; without it the server makes one."),
            Arg::after(c"HOLDER", c"holder", ArgKind::String)
                .optional()
                .about(c"A public label, at most 512 bytes; without it the connection's name, if that is no longer."),
            Arg::plain(
                c"conflict",
                ArgKind::OneOf(&[
                    Arg::after(c"BLOCK", c"wait-milliseconds", ArgKind::Integer)
                        .about(c"If another holds it, wait so long; 0 waits without limit."),
                    Arg::after(c"STEAL", c"steal", ArgKind::Word).about(c"If another holds it, take it."),
                    Arg::after(c"STEALIF", c"fence", ArgKind::Integer)
                        .about(c"If another holds it with this fence, take it."),
                ]),
            )
            .optional(),
            Arg::after(c"LINGER", c"linger-milliseconds", ArgKind::Integer)
                .optional()
                .about(c"When the holder's connection closes, cut what remains of the deadline to at most this."),
        ],
        page: PAGE,
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        match Request::parse(args) {
            Ok(request) => {
                if let Some(index) = request.token_index {
                    ctx.redact(index);
                }
                request.run(ctx)
            }
            Err(error) => {
                // Nobody knows which argument was meant as the token.
                ctx.redact_from(2, args);
                Err(error)
            }
        }
    }
}

const PAGE: Page = Page {
    replies: &[
        "Array of two when granted: the token (bulk string) and the fence (integer).",
        "Null when refused, and when the time of `BLOCK` is up.",
    ],
    errors: &[
        (CommandError::NotAnInteger, "a number is not a plain base-10 integer"),
        (CommandError::InvalidExpire(NAME), "the time is 0, negative, or beyond what the server can store"),
        (CommandError::AboveCap(NAME, MAX_TTL_MS_DEFAULT), "the time is above the setting `prlock.max-ttl-ms`"),
        (CommandError::NegativeTimeout, "a negative `BLOCK`"),
        (CommandError::NegativeLinger, "a negative `LINGER`"),
        (CommandError::TokenLength, "an empty or overlong token"),
        (CommandError::HolderLength, "an overlong holder label"),
        (CommandError::WrongType, "the key holds, or comes to hold during the wait, neither a lock nor a string"),
        (
            CommandError::Syntax,
            "an unknown or repeated option, both or neither of `EX` and `PX`, or more than one of `BLOCK`, `STEAL` and \
             `STEALIF`",
        ),
        (
            CommandError::CannotWait,
            "`BLOCK` on a RESP3 connection with subscriptions, where the server has no way to wait",
        ),
        (CommandError::NoFence, "the clock, or a lock that was loaded, is beyond the year 2255"),
    ],
    notes: &[
        "| the key | CLAIM | with `STEAL` | with `STEALIF fence` |\n\
         |---|---|---|---|\n\
         | is free, or past its deadline | granted, new fence | granted, new fence | granted, new fence |\n\
         | is a lock with this same token | granted with the same fence; deadline, holder and linger are set anew | the \
         same | the same |\n\
         | is a lock with another token | refused, or queued by `BLOCK` | granted, new fence; the old holder has lost it | \
         granted if its fence is this one, else refused |\n\
         | is a plain string, as `SET key token NX PX` makes it | refused, or queued by `BLOCK` | granted in its place | \
         refused |\n\
         | is of another type | error | error | error |",
        "**Fence.** Greater at every grant than at any earlier grant by this server, over all keys and databases. Hand it to \
         what the lock protects, and let that refuse a lower one than it has seen.",
        "**Sending it again.** With a token of your own a claim may be sent again after a lost reply or connection: it is \
         not refused by its own lock, and has the same fence. Without `TOKEN` each call is a new claim.",
        "**BLOCK.** First come, first served. A release, a deadline that passes, and every other way in which the key goes \
         give the lock to the first who waits, without a further message from it; the time of its lock starts then. In a \
         transaction, in a script and from another module it does not wait: the reply is null, as `BLPOP`'s is. \
         `CLIENT UNBLOCK` ends a wait with null, or with `ERROR` by the error `UNBLOCKED`. A primary that becomes a replica \
         ends it by `UNBLOCKED`, and a slot that leaves the node by `TRYAGAIN`: then claim again where the key is now. Rights \
         are asked for again at the grant: whoever has lost them meanwhile gets `NOPERM`, and the next has the lock.",
        "**LINGER.** For workers that can die. When the connection that last claimed or renewed the lock closes, for whatever \
         reason, at most so many milliseconds are left of it; 0 frees it at once. A renewal from another connection moves \
         the binding there. It is not stored: after a restart or failover the next renewal binds the lock again. A claim \
         or renewal by a script or another module binds it to no connection.",
    ],
    examples: &[
        (
            "A grant, the same call sent again, and another worker's refusal:",
            "worker-1> PRLOCK.CLAIM order:7 EX 60 TOKEN one HOLDER worker-1\n\
             1) \"one\"\n\
             2) (integer) 1796085061440021\n\
             worker-1> PRLOCK.CLAIM order:7 EX 60 TOKEN one HOLDER worker-1\n\
             1) \"one\"\n\
             2) (integer) 1796085061440021\n\
             worker-2> PRLOCK.CLAIM order:7 EX 60 TOKEN two HOLDER worker-2\n\
             (nil)",
        ),
        (
            "Worker 2 waits up to 30 seconds, and has the lock in the very step of the release:",
            "worker-2> PRLOCK.CLAIM order:7 EX 60 TOKEN two HOLDER worker-2 BLOCK 30000\n\
             worker-1> PRLOCK.RELEASE order:7 one\n\
             (integer) 1\n\
             # worker-2 now gets:\n\
             1) \"two\"\n\
             2) (integer) 1796085061440988",
        ),
        (
            "Worker 3 takes it from exactly this grant. Worker 2 learns of it at its next renewal:",
            "worker-3> PRLOCK.CLAIM order:7 EX 60 TOKEN three HOLDER worker-3 STEALIF 1796085061440988\n\
             1) \"three\"\n\
             2) (integer) 1796085061441050\n\
             worker-2> PRLOCK.RENEW order:7 two EX 60\n\
             (integer) 0",
        ),
    ],
};

/// What to do when another token holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    Refuse,
    /// Wait so many ms; 0 for ever.
    Block(i64),
    Steal,
    /// Only from the grant with this fence.
    StealIf(u64),
}

/// A call whose arguments are checked.
struct Request<'a> {
    key: Str<'a>,
    ttl_ms: i64,
    token: Option<&'a [u8]>,
    token_index: Option<usize>,
    holder: Option<&'a [u8]>,
    conflict: Conflict,
    linger_ms: Option<i64>,
}

impl<'a> Request<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CommandError> {
        let key = args.str(1).ok_or(CommandError::Syntax)?;
        let (mut ex, mut px, mut token, mut holder) = (None, None, None, None);
        let (mut block, mut steal, mut steal_if, mut linger) = (None, false, None, None);
        let mut options = Options::new(args, 2);
        while let Some(word) = options.word() {
            match word {
                word if is(word, "PX") => options.value(&mut px)?,
                word if is(word, "EX") => options.value(&mut ex)?,
                word if is(word, "TOKEN") => options.value(&mut token)?,
                word if is(word, "HOLDER") => options.value(&mut holder)?,
                word if is(word, "BLOCK") => options.value(&mut block)?,
                word if is(word, "STEAL") => Options::flag(&mut steal)?,
                word if is(word, "STEALIF") => options.value(&mut steal_if)?,
                word if is(word, "LINGER") => options.value(&mut linger)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        let ttl = Ttl::one_of(ex, px)?;
        let conflict = match (block, steal, steal_if) {
            (None, false, None) => Conflict::Refuse,
            (Some(ms), false, None) => Conflict::Block(options::duration_ms(ms, CommandError::NegativeTimeout)?),
            (None, true, None) => Conflict::Steal,
            (None, false, Some(fence)) => Conflict::StealIf(options::fence(fence)?),
            _ => return Err(CommandError::Syntax),
        };
        let linger_ms = linger.map(|ms| options::duration_ms(ms, CommandError::NegativeLinger)).transpose()?;
        Ok(Self {
            key,
            ttl_ms: ttl.ms(NAME)?,
            token: token.map(|value| options::token(value.bytes)).transpose()?,
            token_index: token.map(|value| value.index),
            holder: holder.map(|value| options::holder(value.bytes)).transpose()?,
            conflict,
            linger_ms,
        })
    }

    fn run(&self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        // Whoever waits for a key that has become free comes before a newcomer. A steal asks for no turn.
        if self.conflict != Conflict::Steal && wake::is_awaited(ctx, self.key) {
            wake::serve(ctx, ctx.db(), self.key.bytes());
        }
        // The connection's name, asked for only where it is needed: not by a refusal.
        let mut name = None;
        let key = find::open(ctx, self.key);
        let lock = match key.kind() {
            Kind::Free => grant::new(ctx, key, self.terms(ctx, &mut name), clock::command(), grant::Cause::Free)?,
            Kind::Lock(lock) => {
                let is_own = self.token.is_some_and(|token| lock.token_is(token));
                let steals = match self.conflict {
                    Conflict::Steal => true,
                    Conflict::StealIf(fence) => lock.fence() == fence,
                    Conflict::Refuse | Conflict::Block(_) => false,
                };
                if is_own {
                    grant::again(ctx, key, self.terms(ctx, &mut name), clock::command())?
                } else if steals {
                    grant::new(ctx, key, self.terms(ctx, &mut name), clock::command(), grant::Cause::Steal)?
                } else {
                    return self.refuse(ctx, key);
                }
            }
            Kind::String if self.conflict == Conflict::Steal => {
                grant::new(ctx, key, self.terms(ctx, &mut name), clock::command(), grant::Cause::Steal)?
            }
            Kind::String => return self.refuse(ctx, key),
            Kind::Other => return Err(CommandError::WrongType),
        };
        self.reply_grant(ctx, &lock);
        Ok(())
    }

    /// Another token holds the lock: null, or a place in the queue.
    #[inline]
    fn refuse(&self, ctx: Ctx<'_>, key: Key<'_>) -> Result<(), CommandError> {
        match self.conflict {
            Conflict::Block(ms) if may_wait(ctx) => self.wait(ctx, key, ms),
            _ => {
                state(|state| state.stats.claims_refused = state.stats.claims_refused.saturating_add(1));
                ctx.reply_null();
                Ok(())
            }
        }
    }

    #[inline(never)]
    fn wait(&self, ctx: Ctx<'_>, key: Key<'_>, ms: i64) -> Result<(), CommandError> {
        let wish = self.terms(ctx, &mut None).to_wish(acl::name_of_caller(ctx));
        wake::wait(ctx, key, wish, ms)
    }

    /// What the client asks for; `name` keeps the label that is its connection's name.
    fn terms<'t>(&'t self, ctx: Ctx<'_>, name: &'t mut Option<OwnedStr>) -> Terms<'t> {
        let holder = match self.holder {
            Some(holder) => holder,
            None => {
                *name = ctx.client_name();
                let label = name.as_ref().map_or(&[][..], |name| name.as_str().bytes());
                options::holder(label).unwrap_or_default()
            }
        };
        Terms {
            token: self.token,
            holder,
            ttl_ms: self.ttl_ms,
            linger_ms: self.linger_ms,
            connection_id: self.linger_ms.and_then(|_| ctx.connection_id()),
        }
    }

    fn reply_grant(&self, ctx: Ctx<'_>, lock: &Lock) {
        match self.token {
            Some(token) => reply_granted(ctx, token, lock.fence()),
            None => {
                let mut token = Bytes::new();
                lock.token_into(&mut token);
                reply_granted(ctx, &token, lock.fence());
            }
        }
    }
}

/// Whether the caller can wait. Another module's call does not wait even if it says that it could (`K`): where that module
/// gives up, the server would end at an assertion.
#[inline(never)]
fn may_wait(ctx: Ctx<'_>) -> bool {
    !ctx.flags().denies_blocking() && ctx.connection_id().is_some()
}

/// The reply to whoever got the lock.
pub fn reply_granted(ctx: Ctx<'_>, token: &[u8], fence: u64) {
    ctx.reply_array(2);
    ctx.reply_bulk(token);
    ctx.reply_integer(fence as i64);
}

/// A token of the server's own: 128 random bits from a cryptographic generator, as 32 lowercase hex digits.
pub fn make_token() -> String {
    let bits: u128 = rand::rng().random();
    let mut token = String::with_capacity(32);
    // Writing into a string cannot fail.
    let _ = write!(token, "{bits:032x}");
    token
}
