"""What the README tells a reader to run, run as told, in a copy of the folder without what was installed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import prlock

from .support.server import EXAMPLE, Server, free_port, until


def run(command, cwd, **env):
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def blocks(language):
    readme = (EXAMPLE / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


class ReadmeTest(unittest.TestCase):
    def test_commands(self):
        commands = "".join(blocks("sh")).splitlines()
        # The tests themselves, which are running.
        self.assertEqual(commands.pop(), ".venv/bin/python -m unittest")
        self.assertGreaterEqual(len(commands), 4)
        server = Server()
        self.addCleanup(server.stop)
        folder = tempfile.mkdtemp(prefix="prlock-readme-")
        self.addCleanup(shutil.rmtree, folder)
        shutil.copytree(EXAMPLE, f"{folder}/python", ignore=shutil.ignore_patterns(".venv", "__pycache__"))
        for command in commands:
            result = run(command, f"{folder}/python", REDIS_URL=server.url)
            self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}")
            if "demo" in command:
                one = r"(\w+) holds the lock, fence \d+\n\1 is done, the lock is still its own\n"
                self.assertRegex(result.stdout, rf"^{one}{one.replace('1', '2')}$")
        self.assertEqual(server.number("DBSIZE"), 0)

    def test_the_demo_says_what_is_wrong_in_one_line(self):
        bare = Server(module=False)
        self.addCleanup(bare.stop)
        for url, text in ((bare.url, "loadmodule"), (f"redis://127.0.0.1:{free_port()}", "is it running")):
            for half in ("", "aio"):
                result = run(f"{sys.executable} demo.py {half}", EXAMPLE, REDIS_URL=url)
                self.assertEqual(result.returncode, 1)
                self.assertIn(text, result.stdout)
                self.assertEqual(len(result.stdout.splitlines()), 1, result.stdout)

    def test_code(self):
        # The last is for a Cluster: see test_nodes.py.
        first, second, end, aio_end, _ = blocks("python")
        server = Server()
        self.addCleanup(server.stop)
        stored = []

        def load(number):
            return f"invoice {number}"

        def store(invoice, fence):
            stored.append((invoice, fence))

        async def later(function, *args, **named):
            # The process is told to end while the work runs.
            if function is store:
                os.kill(os.getpid(), signal.SIGTERM)
            return function(*args, **named)

        before = signal.getsignal(signal.SIGTERM)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        first, second = (text.replace("Redis()", f"Redis(port={server.port})") for text in (first, second))
        names = {"load": load, "store": store}
        exec(first, names)

        def terminate():
            until("the handler is there", lambda: signal.getsignal(signal.SIGTERM) is not before)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=terminate, daemon=True).start()
        exec(end, names)
        self.assertEqual(names["left"], [])
        with self.assertRaisesRegex(prlock.LockError, "shutting down"), names["locks"].lock("k", 1000):
            self.fail("the work ran")
        names = {
            "load": lambda *args: later(load, *args),
            "store": lambda *args, **named: later(store, *args, **named),
        }
        exec(f"{second}{aio_end}    await locks._client.aclose()\n    assert left == [], left\nasyncio.run(main())", names)
        self.assertEqual([invoice for invoice, _ in stored], ["invoice 17"] * 2)
        self.assertLess(stored[0][1], stored[1][1])
        self.assertEqual(server.number("DBSIZE"), 0)
