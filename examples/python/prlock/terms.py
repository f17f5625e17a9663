"""What both halves share: the commands, what their replies mean, and the clock."""

import math
import random
import secrets
import time
from dataclasses import dataclass

from .errors import LockError


def now():
    """Seconds by a clock that nobody can set. Where the system has one that also counts while the machine sleeps, that."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True)
class Terms:
    """One lock as its caller wants it; all arguments of `lock` but the client. Checked here, before anything is sent."""

    key: str | bytes
    ttl_ms: int
    wait_ms: float = 0
    holder: str | bytes | None = None
    linger_ms: int | None = None
    steal: bool = False
    steal_if: int | None = None
    token: str | bytes | None = None
    #: How long a reply may take before the connection counts as broken.
    reply_ms: int = 5000
    #: How long a claim is sent again when the connection breaks or the server can't serve it.
    retry_ms: int = 3000

    def __post_init__(self):
        if not self.ttl_ms > 0:
            raise LockError("ARGUMENT", "ttl_ms must be above 0.")
        if not self.wait_ms >= 0 or self.reply_ms <= 0 or self.retry_ms < 0:
            raise LockError("ARGUMENT", "wait_ms and retry_ms must not be negative, and reply_ms must be above 0.")
        if self.steal and self.steal_if is not None:
            raise LockError("ARGUMENT", "steal takes the lock from anyone, steal_if only from one grant: choose one.")
        if self.steals and self.wait_ms:
            raise LockError("ARGUMENT", "A lock that is stolen is not waited for: leave wait_ms out.")
        if self.token is None:
            # Our own, so that a claim whose reply was lost can be sent again: the server grants the same token once.
            object.__setattr__(self, "token", secrets.token_hex(16))

    @property
    def steals(self):
        return self.steal or self.steal_if is not None

    @property
    def ttl(self):
        return self.ttl_ms / 1000

    @property
    def reply(self):
        return self.reply_ms / 1000

    @property
    def retry(self):
        return self.retry_ms / 1000

    @property
    def wait(self):
        return self.wait_ms / 1000

    def claim(self, wait_s):
        command = ["PRLOCK.CLAIM", self.key, "PX", self.ttl_ms, "TOKEN", self.token]
        if self.holder is not None:
            command += ["HOLDER", self.holder]
        if self.linger_ms is not None:
            command += ["LINGER", self.linger_ms]
        if self.steal:
            command += ["STEAL"]
        elif self.steal_if is not None:
            command += ["STEALIF", self.steal_if]
        elif wait_s > 0:
            # BLOCK 0 waits without limit, so the least is 1.
            command += ["BLOCK", 0 if math.isinf(wait_s) else max(1, math.ceil(wait_s * 1000))]
        return command

    def renew(self, fence):
        return ["PRLOCK.RENEW", self.key, self.token, "PX", self.ttl_ms, "FENCE", fence]

    def release(self, fence=None):
        return ["PRLOCK.RELEASE", self.key, self.token, *([] if fence is None else ["FENCE", fence])]

    def surely_since(self, sent_at):
        """Whether the deadline may be counted from when the claim was sent. A wait may have been granted at any time
        since, so after a long one a renewal must say so."""
        return now() - sent_at < self.ttl / 6


def wrong_client(client, wanted, other):
    """What to do with a client that is not the one wanted."""
    if hasattr(client, "get_node_from_key"):
        return LockError(
            "CLUSTER",
            "A lock lives on one node of a Cluster and keeps a connection to it: give the client of the key's node, as the "
            "README says under 'Sentinel and Cluster'.",
        )
    return LockError("ARGUMENT", f"This wants a {wanted}; {other}.")


def fence_of(reply):
    """The grant's fence; None for a refusal. Only what has the shape of a grant is one."""
    if reply is None:
        return None
    if isinstance(reply, list) and len(reply) == 2 and isinstance(reply[1], int):
        return reply[1]
    raise LockError("SERVER", "PRLOCK.CLAIM: a reply that is neither a grant nor a refusal. What server is this?")


def yes_or_no(reply):
    if isinstance(reply, int) and reply in (0, 1):
        return bool(reply)
    raise LockError("SERVER", "A reply that is neither 1 nor 0. What server is this?")


def pause_s(attempt):
    """25 ms, 50 ms, ... 1 s, each a half of it by chance, so that not all come back at the same moment."""
    return min(1.0, 0.025 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1)


def lapsed(key):
    return LockError(
        "SERVER",
        f"The lock {key!r} was granted, but lapsed before it could be used, again and again: the server or the way to it "
        "is too slow for so short a lifetime.",
        passing=True,
    )


def connection_settings(client, retry):
    """The client's own address, login and TLS for a connection of ours: one that doesn't try again by itself, since a
    lock must hear of trouble at once, and that is not looked after by the client's pool."""
    settings = dict(client.connection_pool.connection_kwargs)
    for name in list(settings):
        if name.startswith(("maint_notifications", "orig_")):
            del settings[name]
    settings.update(retry=retry, health_check_interval=0)
    settings.pop("retry_on_error", None)
    settings.pop("retry_on_timeout", None)
    return settings
