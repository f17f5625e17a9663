//! `PRLOCK.INFO key`

use super::error::CommandError;
use super::spec::{Command, KEY, KeyUse, Page, Spec};
use crate::changes::find;
use crate::locks::lock::Lock;
use crate::server::args::Args;
use crate::server::clock;
use crate::server::ctx::Ctx;
use crate::server::key::Kind;
use crate::server::main_thread::state;

/// The command, as the table names it.
pub struct Info;

impl Command for Info {
    const SPEC: Spec = Spec {
        name: c"PRLOCK.INFO",
        flags: c"readonly fast",
        acl: c"read fast prlock",
        arity: 2,
        summary: c"Tells who holds a lock, since when and for how long still.",
        complexity: c"O(1)",
        since: c"0.1.0",
        tips: Some(c"nondeterministic_output"),
        key: Some(KeyUse::Read),
        args: &[KEY],
        page: Page {
            replies: &[
                "Map of nine fields, which is a flat array in RESP2:\n\n  \
                 | field | what |\n  \
                 |---|---|\n  \
                 | `key` | the lock's name |\n  \
                 | `holder` | the public label of its holder, or empty |\n  \
                 | `fence` | the number of this grant |\n  \
                 | `ttl-ms` | how long until the deadline; -1 for none, after `PERSIST` |\n  \
                 | `held-ms` | how long since the grant |\n  \
                 | `idle-ms` | how long since the last claim or renewal |\n  \
                 | `renewals` | how often it was renewed |\n  \
                 | `linger-ms` | what `LINGER` said; -1 without it |\n  \
                 | `waiters` | how many clients wait for it |",
                "Null if there is no lock: the key is free, or a plain string.",
            ],
            errors: &[(CommandError::WrongType, "the key holds neither a lock nor a string")],
            notes: &[
                "It never shows the token. Ages are never negative, whatever the clock did meanwhile.",
                "Behind a renewal that replied `0` it tells who has taken over.",
            ],
            examples: &[(
                "A lock, and none:",
                "127.0.0.1:6379> PRLOCK.CLAIM invoice:11 EX 60 TOKEN one HOLDER worker-1\n\
                 1) \"one\"\n\
                 2) (integer) 1796085061441090\n\
                 127.0.0.1:6379> PRLOCK.INFO invoice:11\n \
                  1) \"key\"\n \
                  2) \"invoice:11\"\n \
                  3) \"holder\"\n \
                  4) \"worker-1\"\n \
                  5) \"fence\"\n \
                  6) (integer) 1796085061441090\n \
                  7) \"ttl-ms\"\n \
                  8) (integer) 59993\n \
                  9) \"held-ms\"\n\
                 10) (integer) 7\n\
                 11) \"idle-ms\"\n\
                 12) (integer) 7\n\
                 13) \"renewals\"\n\
                 14) (integer) 0\n\
                 15) \"linger-ms\"\n\
                 16) (integer) -1\n\
                 17) \"waiters\"\n\
                 18) (integer) 0\n\
                 127.0.0.1:6379> PRLOCK.RELEASE invoice:11 one\n\
                 (integer) 1\n\
                 127.0.0.1:6379> PRLOCK.INFO invoice:11\n\
                 (nil)",
            )],
        },
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        let key = find::read(ctx, args.str(1).ok_or(CommandError::Syntax)?);
        match key.kind() {
            Kind::Lock(lock) => {
                reply(ctx, ctx.db(), &lock, key.expires_at_ms(), clock::command().ms());
                Ok(())
            }
            Kind::Free | Kind::String => {
                ctx.reply_null();
                Ok(())
            }
            Kind::Other => Err(CommandError::WrongType),
        }
    }
}

/// A lock as INFO and LIST show it. Ages are never negative, whatever the clock did meanwhile.
pub fn reply(ctx: Ctx<'_>, db: i32, lock: &Lock, expires_at_ms: Option<i64>, now_ms: i64) {
    let since = |at_ms: i64| now_ms.saturating_sub(at_ms).max(0);
    let waiters = state(|state| state.waiting.count(db, lock.key()));
    ctx.reply_map(9);
    ctx.reply_bulk(b"key");
    ctx.reply_bulk(lock.key());
    ctx.reply_bulk(b"holder");
    ctx.reply_bulk(lock.holder());
    let numbers: [(&[u8], i64); 7] = [
        (b"fence", lock.fence() as i64),
        (b"ttl-ms", expires_at_ms.map_or(-1, |at_ms| at_ms.saturating_sub(now_ms).max(0))),
        (b"held-ms", since(lock.claimed_at_ms())),
        (b"idle-ms", since(lock.renewed_at_ms())),
        (b"renewals", lock.renewals().into()),
        (b"linger-ms", lock.linger_ms().unwrap_or(-1)),
        (b"waiters", waiters as i64),
    ];
    for (name, number) in numbers {
        ctx.reply_bulk(name);
        ctx.reply_integer(number);
    }
}
