//! What the caller's ACL lets it do with a key that its command does not name.

use std::ffi::c_int;

use redis_module::raw::{self, RedisModuleUser};

use super::OK;
use super::ctx::Ctx;
use super::string::{OwnedStr, Str};

/// The user behind the running command, looked up once for a whole command.
pub struct User(*mut RedisModuleUser);

impl User {
    /// `None` if the user is not there (any more): then nothing is permitted.
    pub fn of(ctx: Ctx<'_>) -> Option<Self> {
        // SAFETY: a command's context. The name is ours to free.
        let name = api!(RedisModule_GetCurrentUserName(ctx.raw())).filter(|name| !name.is_null())?;
        let name = unsafe { OwnedStr::from_raw(name) };
        // SAFETY: a live string; the user is ours to free.
        let user = api!(RedisModule_GetModuleUserFromUserName(name.as_str().raw()))?;
        (!user.is_null()).then_some(Self(user))
    }

    fn may(&self, key: Str<'_>, access: u32) -> bool {
        // SAFETY: a live user and string.
        api!(RedisModule_ACLCheckKeyPermissions(self.0, key.raw(), access as c_int)) == Some(OK)
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
        // SAFETY: ours, freed once.
        let _ = api!(RedisModule_FreeModuleUser(self.0));
    }
}
