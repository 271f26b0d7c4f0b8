import unittest

from throttle import Limiter, Policy, SlidingWindow, TokenBucket, parse_policy
from throttle.clock import ManualClock
from throttle.report import headers, listing


class Buckets(unittest.TestCase):
    def setUp(self):
        self.clock = ManualClock()
        self.bucket = TokenBucket(2, 4, self.clock)

    def test_burst_then_rate(self):
        self.assertTrue(self.bucket.take(4))
        self.assertFalse(self.bucket.take())
        self.clock.advance(0.5)
        self.assertTrue(self.bucket.take())

    def test_never_more_than_its_size(self):
        self.clock.advance(100)
        self.assertEqual(self.bucket.available, 4)

    def test_wait(self):
        self.bucket.take(4)
        self.assertEqual(self.bucket.wait(3), 1.5)
        self.assertEqual(self.bucket.wait(5), float("inf"))


class Windows(unittest.TestCase):
    def setUp(self):
        self.clock = ManualClock()
        self.window = SlidingWindow(3, 10, self.clock)

    def test_limit(self):
        self.assertTrue(self.window.take(2))
        self.assertFalse(self.window.take(2))
        self.clock.advance(10)
        self.assertTrue(self.window.take(2))

    def test_wait_for_the_oldest(self):
        self.window.take()
        self.clock.advance(4)
        self.window.take(2)
        self.assertEqual(self.window.wait(), 6)
        self.assertEqual(self.window.wait(2), 10)


class Policies(unittest.TestCase):
    def test_text(self):
        self.assertEqual(parse_policy("100/minute burst 20"), Policy(100, 60, 20))
        self.assertEqual(parse_policy("5 / hours"), Policy(5, 3600))

    def test_nonsense(self):
        with self.assertRaises(ValueError):
            parse_policy("5/fortnight")


class Limiting(unittest.TestCase):
    def setUp(self):
        self.clock = ManualClock()
        self.limiter = Limiter({"short": Policy(2, 1), "long": Policy(3, 60)}, self.clock)

    def test_all_or_none(self):
        self.assertTrue(self.limiter.check("ann", 2).allowed)
        self.assertEqual(self.limiter.check("ann").policy, "short")
        self.clock.advance(1)
        self.assertTrue(self.limiter.check("ann").allowed)
        self.assertEqual(self.limiter.check("ann").policy, "long")

    def test_keys_are_apart(self):
        self.limiter.check("ann", 2)
        self.assertTrue(self.limiter.check("bob", 2).allowed)
        self.assertEqual(self.limiter.keys(), ["ann", "bob"])

    def test_reset(self):
        self.limiter.check("ann", 2)
        self.assertTrue(self.limiter.reset("ann"))
        self.assertEqual(self.limiter.remaining("ann"), 2)

    def test_headers(self):
        self.limiter.check("ann", 2)
        self.clock.advance(0.25)
        refused = self.limiter.check("ann")
        self.assertEqual(headers(self.limiter, "ann", refused), {"X-RateLimit-Remaining": "0", "Retry-After": "1"})

    def test_listing(self):
        self.limiter.check("ann", 1)
        self.limiter.check("bob", 2)
        self.assertEqual(listing(self.limiter), "bob: 0 left\nann: 1 left")


if __name__ == "__main__":
    unittest.main()
