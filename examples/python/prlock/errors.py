"""What is wrong, and what to do about it, in words for whoever runs the worker."""

import re

from redis import exceptions


class LockError(Exception):
    """Every error of this package is one. `code` is for programs, the text for people."""

    def __init__(self, code, text, passing=False):
        super().__init__(text)
        self.code = code
        #: It may go away by itself soon, so a retry makes sense; else somebody has to change something.
        self.passing = passing


class LockBusy(LockError):
    """Refused: another token holds the lock, and the time to wait, if any, is up."""

    def __init__(self, key):
        super().__init__("BUSY", f"Another holder has the lock {key!r}.", passing=True)
        self.key = key


class LockLost(LockError):
    """The lock is lost while its work runs."""

    #: `taken`: the server says that it is not ours. `deadline`: no renewal came through for its whole lifetime.
    #: `released` and `shutdown`: this process gave it back.
    WHY = {
        "taken": "the server says that this token no longer holds it (it lapsed, or was stolen, revoked or deleted).",
        "deadline": "no renewal has come through since a whole lifetime, so another may hold it by now.",
        "released": "it has been released: the work is over.",
        "shutdown": "this process is shutting down, and the time for the work to end is up.",
    }

    def __init__(self, key, why):
        super().__init__("LOST", f"The lock {key!r} is lost: {self.WHY[why]}")
        self.key = key
        self.why = why


def shutting_down():
    return LockError("SHUTDOWN", "This process is shutting down and claims no more locks.")


# How known errors of the server begin; whether they pass; what is wrong and what to do. redis-py strips some codes off
# the text and makes classes of them; `_text` puts them back.
_KNOWN = [
    (
        r"(ERR )?unknown command",
        "NO_MODULE",
        False,
        "This server has no PRLOCK module, or came back without it after a restart or failover. Add 'loadmodule "
        ".../libprlock.so' to the redis.conf of every node, replicas too, and restart it; 'MODULE LIST' must name prlock.",
    ),
    (
        r"(ERR )?(syntax error|wrong number of arguments)",
        "OLD_MODULE",
        False,
        "The server's PRLOCK module is older than this client and doesn't know one of the options. Upgrade the module "
        "('MODULE LIST' shows its version), or leave the option out.",
    ),
    (
        r"READONLY",
        "REPLICA",
        False,
        "This address is a replica's. Locks are claimed on the primary: connect to it ('INFO replication' names it), or "
        "through Sentinel.",
    ),
    (
        r"NOAUTH|WRONGPASS|(ERR )?invalid password|ERR AUTH|AUTH ",
        "PASSWORD",
        False,
        "The server wants another user or password. Set them in the client's arguments or URL.",
    ),
    (
        r"NOPERM",
        "RIGHTS",
        False,
        "The ACL user lacks a right. For keys that begin with 'locks:' the server's administrator gives it with: ACL "
        "SETUSER <user> ~locks:* +prlock.claim +prlock.renew +prlock.release +prlock.revoke",
    ),
    (r"MOVED|ASK|CROSSSLOT", "CLUSTER", False, "This server is part of a Cluster, and this is not the key's node."),
    (r"WRONGTYPE", "TYPE", False, "The key holds something else than a lock. Choose another key."),
    (r"OOM", "MEMORY", False, "The server is at maxmemory and grants no new locks: free memory, or raise maxmemory."),
    (
        r"UNBLOCKED|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|NOREPLICAS|MISCONF",
        "SERVER",
        True,
        "The server can't do it now: it starts, fails over, lacks its replicas or can't write to its disk. Its log says "
        "more.",
    ),
    (
        r"(ERR )?(invalid expire|value is|timeout is|token must|holder must)",
        "ARGUMENT",
        False,
        "An argument is out of range.",
    ),
]

_CODES = [
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "WRONGPASS"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.AskError, "ASK"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
]


def explain(command, error):
    """The error of a call to the server or of its connection, as a LockError."""
    text = _text(error)
    for pattern, code, passing, advice in _KNOWN:
        if re.match(pattern, text):
            return LockError(code, f"{command}: {text}. {advice}", passing)
    if isinstance(error, exceptions.ResponseError):
        return LockError("SERVER", f"{command}: {text}")
    return LockError(
        "CONNECTION",
        f"{command}: {text}. No answer from the server: is it running, and are host, port and TLS right? Whether the "
        "command was carried out is not known.",
        passing=True,
    )


def _text(error):
    text = str(error) or type(error).__name__
    # Some servers repeat the arguments in the text, and the token is a secret.
    text = re.sub(r",? with args beginning with:.*", "", text, flags=re.DOTALL).rstrip(". ")
    for kind, code in _CODES:
        if isinstance(error, kind) and not text.startswith(code):
            return f"{code} {text}"
    return text
