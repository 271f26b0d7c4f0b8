"""Undirected graphs: components and spanning trees."""

from pathways.graph import Graph
from pathways.sets import DisjointSets


def components(graph):
    """The nodes that hang together, as lists."""
    sets = DisjointSets(graph.nodes)
    for a, b, _ in graph.edges():
        sets.join(a, b)
    return sets.groups()


def spanning_tree(graph):
    """The lightest edges that hold every component together, as a graph (Kruskal)."""
    tree = Graph()
    for node in graph.nodes:
        tree.add_node(node)
    sets = DisjointSets(graph.nodes)
    for a, b, weight in sorted(graph.edges(), key=lambda edge: edge[2]):
        if sets.join(a, b):
            tree.add_edge(a, b, weight)
    return tree


def total_weight(graph):
    """The sum over all edges."""
    return sum(weight for _, _, weight in graph.edges())
