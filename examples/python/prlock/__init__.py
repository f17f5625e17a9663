"""Locks of the PRLOCK module around work. For threads: `prlock.Locks` and `prlock.lock`; for asyncio: `prlock.aio`."""

from . import aio
from .errors import LockBusy, LockError, LockLost
from .sync import Lock, Locks, lock, revoke

__all__ = ["Lock", "LockBusy", "LockError", "LockLost", "Locks", "aio", "lock", "revoke"]
