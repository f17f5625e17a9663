"""Locks of the PRLOCK module around work. For threads: `prlock.lock`; for asyncio: `prlock.aio.lock`."""

from . import aio
from .errors import LockBusy, LockError, LockLost
from .sync import Lock, lock, revoke

__all__ = ["Lock", "LockBusy", "LockError", "LockLost", "aio", "lock", "revoke"]
