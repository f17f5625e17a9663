//! What the caller's ACL lets it do with a key that its command does not name.

use std::ffi::{CStr, c_int};
use std::io::ErrorKind;

use redis_module::raw::{self, RedisModuleString, RedisModuleUser};

use super::OK;
use super::ctx::Ctx;
use super::string::{OwnedStr, Str};

/// The name of the user who has sent the running command on a connection; `None` if no ACL binds it.
pub fn name_of_caller(ctx: Ctx<'_>) -> Option<Box<[u8]>> {
    // SAFETY: a command's context. The name is ours to free.
    let name = api!(RedisModule_GetClientUserNameById(ctx.raw(), ctx.client_id())).filter(|name| !name.is_null())?;
    Some(unsafe { OwnedStr::from_raw(name) }.as_str().bytes().into())
}

/// Whether the user of this name may run this command, of at least `WORDS` words, on this key now; nobody may who is not
/// there any more.
///
/// Since 8.2.9, and in Debian's 8.0.2, Redis permits nobody a call of fewer words than the command needs (redis#14847).
/// What stands behind the key makes no difference, so that the key itself does.
pub fn may_run<const WORDS: usize>(user: &[u8], command: &CStr, key: Str<'_>) -> bool {
    let (name, command) = (OwnedStr::new(user), OwnedStr::new(command.to_bytes()));
    // SAFETY: a live string; the user is ours to free.
    let Some(user) = api!(RedisModule_GetModuleUserFromUserName(name.as_str().raw())).filter(|user| !user.is_null())
    else {
        return false;
    };
    let user = User(Some(user));
    let mut argv = [key.raw(); WORDS];
    argv[0] = command.as_str().raw();
    user.may_run(&mut argv)
}

/// The user behind the running command, looked up once for a whole command. `None` inside: another module's call, which the
/// server lets do everything.
pub struct User(Option<*mut RedisModuleUser>);

impl User {
    /// `None` if the user is not there (any more): then nothing is permitted.
    pub fn of(ctx: Ctx<'_>) -> Option<Self> {
        // SAFETY: a command's context. The name is ours to free.
        let by_id = api!(RedisModule_GetClientUserNameById(ctx.raw(), ctx.client_id())).filter(|name| !name.is_null());
        let name = match by_id {
            Some(name) => name,
            None => match Behind::of(ctx)? {
                Behind::Nobody => return Some(Self(None)),
                // SAFETY: as above, and there is a user whose name can be read.
                Behind::User => api!(RedisModule_GetCurrentUserName(ctx.raw())).filter(|name| !name.is_null())?,
            },
        };
        let name = unsafe { OwnedStr::from_raw(name) };
        // SAFETY: a live string; the user is ours to free.
        let user = api!(RedisModule_GetModuleUserFromUserName(name.as_str().raw()))?;
        (!user.is_null()).then_some(Self(Some(user)))
    }

    fn may(&self, key: Str<'_>, access: u32) -> bool {
        // SAFETY: a live user and string.
        self.0.is_none_or(|user| api!(RedisModule_ACLCheckKeyPermissions(user, key.raw(), access as c_int)) == Some(OK))
    }

    /// Whether the user may run a command with these arguments, its name first.
    fn may_run(&self, argv: &mut [*mut RedisModuleString]) -> bool {
        // SAFETY: a live user, and so many live strings.
        self.0.is_none_or(|user| {
            let argc = argv.len() as c_int;
            api!(RedisModule_ACLCheckCommandPermissions(user, argv.as_mut_ptr(), argc)) == Some(OK)
        })
    }

    /// Whether the user may read the key.
    pub fn may_read(&self, key: Str<'_>) -> bool {
        self.may(key, raw::REDISMODULE_CMD_KEY_ACCESS)
    }

    /// Whether the user may write the key.
    pub fn may_write(&self, key: Str<'_>) -> bool {
        self.may(key, raw::REDISMODULE_CMD_KEY_UPDATE)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(user) = self.0 {
            // SAFETY: ours, freed once.
            let _ = api!(RedisModule_FreeModuleUser(user));
        }
    }
}

/// What stands behind a call that no connection of its own makes: a script has its caller's user, another module's call
/// has none, and the server would crash if it were asked for that one's name.
enum Behind {
    User,
    Nobody,
}

impl Behind {
    /// Asks by a call that the server refuses before it runs: as the context's user (`C`) if there is one, and then for
    /// its missing arguments. The command is the module's own, since no configuration renames those. `None` if the refusal is neither.
    fn of(ctx: Ctx<'_>) -> Option<Self> {
        // SAFETY: a live context; the format says that no arguments follow.
        let reply = api!(RedisModule_Call(ctx.raw(), crate::commands::INFO.as_ptr(), c"C".as_ptr()))?;
        let refusal = std::io::Error::last_os_error().kind();
        if !reply.is_null() {
            // SAFETY: ours, freed once.
            let _ = api!(RedisModule_FreeCallReply(reply));
            return None;
        }
        match refusal {
            ErrorKind::InvalidInput => Some(Self::User),
            ErrorKind::Unsupported => Some(Self::Nobody),
            _ => None,
        }
    }
}
