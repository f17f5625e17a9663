//! `PRLOCK.REVOKE holder`

use super::error::CommandError;
use super::options;
use super::spec::{Arg, ArgKind, Command, Page, Spec};
use crate::changes::{find, free};
use crate::locks::registry::Walk;
use crate::server::acl::User;
use crate::server::args::Args;
use crate::server::ctx::Ctx;
use crate::server::imports;
use crate::server::key::Key;
use crate::server::main_thread::state;
use crate::server::soon;
use crate::server::string::OwnedStr;

/// The command, as the table names it.
pub struct Revoke;

impl Command for Revoke {
    const SPEC: Spec = Spec {
        name: super::REVOKE,
        flags: c"write",
        acl: c"write slow prlock",
        arity: 2,
        summary: c"Frees every lock of one holder in the selected database on this node.",
        complexity: c"O(M log N) with M the number of locks of this holder and N the number of locks in the database",
        since: c"0.1.0",
        tips: Some(c"request_policy:all_shards response_policy:agg_sum"),
        key: None,
        args: &[Arg::plain(c"holder", ArgKind::String).about(c"The holder label, exactly these bytes.")],
        page: Page {
            replies: &["Integer: how many locks were freed."],
            errors: &[(CommandError::EmptyHolder, "an empty label"), (CommandError::HolderLength, "an overlong label")],
            notes: &[
                "It is for a worker's start and stop: it drops what an earlier life of this worker left behind, and leaves \
                 the locks of its siblings alone. So labels must be unique, as `host:pid` or the name of a pod is.",
                "It frees only locks whose key the caller's ACL lets it write. Plain strings are never touched. Each freed \
                 lock goes to the next who waits for it.",
                "It acts on the selected database on this node. In Cluster mode, send it to every primary.",
            ],
            examples: &[(
                "A worker starts again:",
                "127.0.0.1:6379> PRLOCK.CLAIM task:1 EX 60 HOLDER host-3:4711\n\
                 1) \"15b10a0cf493accc83967d928a748a80\"\n\
                 2) (integer) 1796085061441110\n\
                 127.0.0.1:6379> PRLOCK.CLAIM task:2 EX 60 HOLDER host-4:815\n\
                 1) \"7c22f6e9c5f04f0a9d6f9b84a2d1b3e0\"\n\
                 2) (integer) 1796085061441111\n\
                 127.0.0.1:6379> PRLOCK.REVOKE host-3:4711\n\
                 (integer) 1\n\
                 127.0.0.1:6379> EXISTS task:1 task:2\n\
                 (integer) 1",
            )],
        },
    };

    fn run(ctx: Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
        let holder = options::holder(args.bytes(1).unwrap_or_default())?;
        if holder.is_empty() {
            // The module itself may have asked.
            soon::within_own_call(ctx);
            return Err(CommandError::EmptyHolder);
        }
        let freed = User::of(ctx).map_or(0, |user| revoke(ctx, holder, &user));
        ctx.reply_integer(freed);
        Ok(())
    }
}

fn revoke(ctx: Ctx<'_>, holder: &[u8], user: &User) -> i64 {
    find::settle();
    let db = ctx.db();
    let walk = Walk { holder: Some(holder), ..Walk::default() };
    let locks = state(|state| state.registry.walk(db, &walk, usize::MAX));
    let mut freed = 0i64;
    for lock in locks {
        let name = OwnedStr::new(lock.key());
        if !user.may_write(name.as_str()) || imports::is_importing(name.as_str()) {
            continue;
        }
        let key = Key::look(ctx, name.as_str());
        // What the registry says is verified, as for a list: any other lock under this name stays.
        if key.lock().is_some_and(|found| found.is(&lock)) {
            free::lock(ctx, key, free::Cause::Revoke);
            freed = freed.saturating_add(1);
        }
    }
    state(|state| state.stats.revoked = state.stats.revoked.saturating_add(freed.unsigned_abs()));
    freed
}
