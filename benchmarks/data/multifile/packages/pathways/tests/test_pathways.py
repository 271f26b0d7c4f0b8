import unittest

from pathways import Cycle, Graph, reachable, shortest, spanning_tree, topological
from pathways.order import layers
from pathways.search import distances
from pathways.spanning import components, total_weight
from pathways.text import read, write

ROADS = "a b 4\na c 1\nc b 2\nb d 5\nc d 8\ne f\n"


class Graphs(unittest.TestCase):
    def test_edges_once(self):
        graph = read(ROADS)
        self.assertEqual(len(graph.edges()), 6)
        self.assertEqual(graph.degree("b"), 3)

    def test_removal(self):
        graph = read(ROADS)
        graph.remove_node("c")
        self.assertEqual(graph.neighbours("a"), {"b": 4})

    def test_reversed(self):
        graph = read("a b 3", directed=True).reversed()
        self.assertEqual(graph.edges(), [("b", "a", 3)])

    def test_negative_weights(self):
        with self.assertRaises(ValueError):
            Graph().add_edge("a", "b", -1)


class Searching(unittest.TestCase):
    def test_shortest(self):
        self.assertEqual(shortest(read(ROADS), "a", "d"), (8, ["a", "c", "b", "d"]))
        self.assertIsNone(shortest(read(ROADS), "a", "f"))

    def test_reachable(self):
        self.assertEqual(reachable(read(ROADS), "a"), ["a", "b", "c", "d"])

    def test_distances(self):
        self.assertEqual(distances(read(ROADS), "a"), {"a": 0, "b": 3, "c": 1, "d": 8})


class Ordering(unittest.TestCase):
    def test_topological(self):
        graph = read("shirt tie\ntrousers shoes\ntie jacket\ntrousers jacket", directed=True)
        self.assertEqual(topological(graph), ["shirt", "tie", "trousers", "shoes", "jacket"])

    def test_cycle(self):
        with self.assertRaises(Cycle) as caught:
            topological(read("s a\na b\nb c\nc a", directed=True))
        self.assertEqual(set(caught.exception.nodes), {"a", "b", "c"})

    def test_layers(self):
        self.assertEqual(layers(read("a c\nb c\nc d", directed=True)), [["a", "b"], ["c"], ["d"]])


class Spanning(unittest.TestCase):
    def test_components(self):
        self.assertEqual(components(read(ROADS)), [["a", "b", "c", "d"], ["e", "f"]])

    def test_tree(self):
        self.assertEqual(total_weight(spanning_tree(read(ROADS))), 9)


class Text(unittest.TestCase):
    def test_round_trip(self):
        self.assertEqual(write(read("a b\nb c 2.5\nd\n")), "a b\nb c 2.5\nd\n")


if __name__ == "__main__":
    unittest.main()
