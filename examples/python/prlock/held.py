"""Whether a lock is surely still ours, and which ones are: the same for threads and for asyncio."""

from .errors import LockLost
from .terms import now


class Held:
    """A grant and how long it is safe."""

    def __init__(self, terms, fence, proven_at):
        self.key = terms.key
        #: The secret that renews and releases.
        self.token = terms.token
        #: The number of this grant: give it to what the lock protects, so that it can refuse an older holder.
        self.fence = fence
        self._terms = terms
        # When the last claim or renewal that succeeded was sent: from then on the lock is safe for a lifetime.
        self._proven_at = proven_at
        self._why = None

    @property
    def deadline(self):
        return self._proven_at + self._terms.ttl

    def held(self):
        """Whether the lock is surely still this process's, by the clock of this very moment. Once False, always."""
        if self._why is None and now() >= self.deadline:
            self._lose("deadline")
        return self._why is None

    def check(self):
        """Raises LockLost if the lock is not held any more. Ask before a step that can't be undone."""
        if not self.held():
            raise LockLost(self.key, self._why)

    def _lose(self, why):
        if self._why is None:
            self._why = why

    def _renewed(self, sent_at):
        """A renewal came through. Too late for a lock that somebody was already told is lost."""
        self._proven_at = max(self._proven_at, sent_at)


class Registry:
    """What a process holds, by key and token: when a lock is stolen within the process, the end of the old holder's work
    must not strike out the new holder's entry."""

    def __init__(self):
        self._locks = {}

    def get(self, key, token):
        return self._locks.get((_bytes(key), _bytes(token)))

    def __len__(self):
        return len(self._locks)

    def __iter__(self):
        return iter(list(self._locks.values()))

    def _add(self, held):
        self._locks[_bytes(held.key), _bytes(held.token)] = held

    def _remove(self, held):
        # A caller may have claimed twice with the same token of its own.
        if self.get(held.key, held.token) is held:
            del self._locks[_bytes(held.key), _bytes(held.token)]


def _bytes(name):
    return name if isinstance(name, bytes) else str(name).encode()
