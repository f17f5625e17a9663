"""The replies as redis-py gives them, in RESP2 and RESP3 (CASES 59): a refusal is None, 1 and 0 are integers."""

from .support.world import variants

FIELDS = [b"key", b"holder", b"fence", b"ttl-ms", b"held-ms", b"idle-ms", b"renewals", b"linger-ms", b"waiters"]


class GoldenCases:
    def send(self, *args):
        return self.driver.execute(self.client, *args)

    def map(self, reply):
        """A dict in RESP3, a flat list in RESP2."""
        self.assertIs(type(reply), dict if self.protocol == 3 else list)
        return reply if self.protocol == 3 else dict(zip(reply[::2], reply[1::2], strict=True))

    def integer(self, expected, *args):
        reply = self.send(*args)
        self.assertIs(type(reply), int)
        self.assertEqual(reply, expected)

    def test_golden_replies(self):
        grant = self.send("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "a", "HOLDER", "w")
        self.assertIs(type(grant), list)
        token, fence = grant
        self.assertEqual(token, b"a")
        self.assertIs(type(fence), int)
        self.assertEqual(self.send("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "a", "HOLDER", "w"), grant)
        made, _ = self.send("PRLOCK.CLAIM", "other", "PX", 60_000)
        self.assertRegex(made, rb"^[0-9a-f]{32}$")

        self.assertIsNone(self.send("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "b"))
        self.assertIsNone(self.send("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "b", "BLOCK", 1))
        self.assertIsNone(self.send("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "b", "STEALIF", 1))
        self.assertIsNone(self.send("PRLOCK.INFO", "free"))
        self.integer(1, "PRLOCK.RENEW", "k", "a", "PX", 60_000)
        self.integer(0, "PRLOCK.RENEW", "k", "b", "PX", 60_000)
        self.integer(0, "PRLOCK.RELEASE", "k", "b")

        info = self.map(self.send("PRLOCK.INFO", "k"))
        self.assertEqual(list(info), FIELDS)
        self.assertEqual((info[b"key"], info[b"holder"], info[b"fence"]), (b"k", b"w", fence))
        self.assertEqual((info[b"renewals"], info[b"linger-ms"], info[b"waiters"]), (1, -1, 0))
        listed = self.send("PRLOCK.LIST")
        self.assertIs(type(listed), list)
        self.assertEqual([self.map(each)[b"key"] for each in listed], [b"k", b"other"])
        self.assertEqual(list(self.map(listed[0])), FIELDS)
        self.assertEqual(self.send("PRLOCK.LIST", "MATCH", "none*"), [])

        self.integer(0, "PRLOCK.REVOKE", "nobody")
        self.integer(1, "PRLOCK.REVOKE", "w")
        self.integer(0, "PRLOCK.RELEASE", "k", "a")
        self.send("PRLOCK.CLAIM", "k", "PX", 60_000, "TOKEN", "a")
        self.integer(1, "PRLOCK.RELEASE", "k", "a")


variants(globals(), GoldenCases)
del GoldenCases
