import unittest

from gridtext import Column, Table, from_csv, from_records
from gridtext.cells import clipped, shown, wrapped


class Cells(unittest.TestCase):
    def test_values(self):
        self.assertEqual([shown(v) for v in (None, True, 1.5, 7, "x")], ["-", "yes", "1.50", "7", "x"])

    def test_wrapping(self):
        self.assertEqual(wrapped("one two three", 7), ["one two", "three"])
        self.assertEqual(wrapped("abcdefgh", 3), ["abc", "def", "gh"])

    def test_clipping(self):
        self.assertEqual(clipped("abcdefgh", 6), "abc...")
        self.assertEqual(clipped("abc", 6), "abc")


class Drawing(unittest.TestCase):
    def test_plain(self):
        table = Table(["name", Column("n", align="right")], [["a", 1], ["bcdef", 20]])
        self.assertEqual(table.draw(), "name    n\n-----  --\na       1\nbcdef  20")

    def test_grid(self):
        table = Table(["a", "b"], [["x", "y"]], style="grid")
        self.assertEqual(table.draw(), "+---+---+\n| a | b |\n+---+---+\n| x | y |\n+---+---+")

    def test_tall_cells(self):
        table = Table([Column("text", most=5), "n"], [["ab cd ef", 1]], style="bare")
        self.assertEqual(table.draw(), "text   n\nab cd  1\nef")


class Rows(unittest.TestCase):
    def test_missing_cells(self):
        table = Table(["a", "b"], [["x"]], style="bare")
        self.assertEqual(table.draw(), "a  b\nx  -")

    def test_sort(self):
        table = Table(["n"], [[2], [None], [1]])
        table.sort("n", reverse=True)
        self.assertEqual(table.rows, [[2], [1], [None]])

    def test_total(self):
        self.assertEqual(Table(["n"], [[2], [None], [1]]).total("n"), 3)


class Reading(unittest.TestCase):
    def test_records(self):
        table = from_records([{"a": 1}, {"a": 2, "b": "x"}], style="bare")
        self.assertEqual(table.draw(), "a  b\n1  -\n2  x")

    def test_csv(self):
        table = from_csv("name,size\nfoo,3\nbar,\n", style="bare")
        self.assertEqual(table.draw(), "name  size\nfoo      3\nbar      -")


if __name__ == "__main__":
    unittest.main()
