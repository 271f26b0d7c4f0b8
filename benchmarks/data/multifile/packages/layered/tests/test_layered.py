import unittest

from layered import ConfigError, Layers, parse, write
from layered.references import ReferenceLoop


class Parsing(unittest.TestCase):
    def test_sections_and_types(self):
        text = 'debug = yes\n[server]\nport: 8080\nratio = 0.5\nhosts = [a, b]\nname = "8080"\n'
        server = {"port": 8080, "ratio": 0.5, "hosts": ["a", "b"], "name": "8080"}
        self.assertEqual(parse(text), {"": {"debug": True}, "server": server})

    def test_comments(self):
        text = '; top\n# top\na = 1  # one\nb = "x # y"\n'
        self.assertEqual(parse(text), {"": {"a": 1, "b": "x # y"}})

    def test_continued_lines(self):
        self.assertEqual(parse("a = one \\\n    two\nb = 2\n"), {"": {"a": "one two", "b": 2}})

    def test_errors_tell_the_line(self):
        with self.assertRaises(ConfigError) as caught:
            parse("a = 1\n\nnonsense\n")
        self.assertEqual(caught.exception.line, 3)

    def test_twice(self):
        with self.assertRaises(ConfigError):
            parse("a = 1\nA = 2\n")


class Laying(unittest.TestCase):
    def setUp(self):
        self.layers = Layers()
        self.layers.add(
            "defaults", "[server]\nhost = localhost\nport = 80\nurl = http://${server.host}:${server.port}/"
        )
        self.layers.add("user", "[server]\nport = 8080\n")

    def test_the_last_wins(self):
        self.assertEqual(self.layers.get("server", "port"), 8080)
        self.assertEqual(self.layers.origin("server", "host"), "defaults")

    def test_references(self):
        self.assertEqual(self.layers.get("server", "url"), "http://localhost:8080/")

    def test_a_whole_reference_keeps_its_type(self):
        self.layers.add("more", "[admin]\nport = ${server.port}\n")
        self.assertEqual(self.layers.get("admin", "port"), 8080)

    def test_loops(self):
        self.layers.add("more", "[x]\na = ${x.b}\nb = ${x.a}\n")
        with self.assertRaises(ReferenceLoop):
            self.layers.get("x", "a")

    def test_section(self):
        self.assertEqual(list(self.layers.section("server")), ["host", "port", "url"])
        self.assertEqual(self.layers.sections(), ["server"])


class Writing(unittest.TestCase):
    def test_round_trip(self):
        sections = {"b": {"x": "8080", "y": None, "z": [1, "no"]}, "": {"top": 1.5, "hash": "a #b"}}
        self.assertEqual(parse(write(sections)), sections)


if __name__ == "__main__":
    unittest.main()
