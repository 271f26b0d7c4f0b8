"""Graphs from and to text: one edge a line."""

from pathways.graph import Graph


def read(text, directed=False):
    """``a b 2`` is an edge of weight 2, ``a b`` one of weight 1, ``a`` a node; what follows ``#`` is passed over."""
    graph = Graph(directed)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) == 1:
            graph.add_node(words[0])
        elif len(words) == 2:
            graph.add_edge(*words)
        elif len(words) == 3:
            graph.add_edge(words[0], words[1], _weight(words[2]))
        else:
            raise ValueError(f"line {number}: too many words")
    return graph


def write(graph):
    """Text that :func:`read` reads as the same graph."""
    lines = [f"{a} {b}" if weight == 1 else f"{a} {b} {weight}" for a, b, weight in graph.edges()]
    linked = {node for a, b, _ in graph.edges() for node in (a, b)}
    lines += [str(node) for node in graph.nodes if node not in linked]
    return "".join(f"{line}\n" for line in lines)


def _weight(word):
    return float(word) if "." in word else int(word)
