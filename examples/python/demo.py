"""Two workers want the same lock; one waits until the other is done. With threads, and with asyncio: demo.py aio."""

import asyncio
import os
import sys
import threading
import time

import redis
import redis.asyncio

import prlock

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
HOLDER = f"demo:{os.getpid()}"
# Three seconds of work under a lock of two, which is renewed meanwhile.
LOCK = {"ttl_ms": 2000, "wait_ms": 10_000}


def with_threads():
    locks = prlock.Locks(redis.Redis.from_url(URL), HOLDER)
    # What an earlier life of this process left behind; here there was none, since its label has the process's number.
    locks.revoke_own()
    errors = []

    def worker(name):
        try:
            with locks.lock("demo:report", **LOCK) as held:
                print(f"{name} holds the lock, fence {held.fence}", flush=True)
                for _ in range(30):
                    held.check()
                    time.sleep(0.1)
                print(f"{name} is done, the lock is {'still its own' if held.held() else 'lost'}", flush=True)
        except prlock.LockError as error:
            errors.append(error)

    threads = [threading.Thread(target=worker, args=[name]) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        # Also after Ctrl-C: what runs may come to its end, and what waits is told.
        locks.shutdown(grace_ms=5000)
    if errors:
        raise errors[0]


async def with_asyncio():
    async def worker(name):
        async with locks.lock("demo:report", **LOCK) as held:
            print(f"{name} holds the lock, fence {held.fence}", flush=True)
            # If the lock is lost, the sleep is cancelled and LockLost is raised.
            await asyncio.sleep(3)
            print(f"{name} is done, the lock is {'still its own' if held.held() else 'lost'}", flush=True)

    async with redis.asyncio.Redis.from_url(URL) as client:
        locks = prlock.aio.Locks(client, HOLDER)
        await locks.revoke_own()
        try:
            await asyncio.gather(worker("first"), worker("second"))
        finally:
            await locks.shutdown(grace_ms=5000)


if __name__ == "__main__":
    try:
        if "aio" in sys.argv[1:]:
            asyncio.run(with_asyncio())
        else:
            with_threads()
    except prlock.LockError as error:
        # One line that says what is wrong and what to do.
        sys.exit(str(error))
