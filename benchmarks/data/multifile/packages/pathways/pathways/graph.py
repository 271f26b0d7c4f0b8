"""Nodes and weighted edges, directed or not. Nodes keep the order in which they came."""


class Graph:
    def __init__(self, directed=False):
        self.directed = directed
        self._near = {}

    def add_node(self, node):
        self._near.setdefault(node, {})

    def add_edge(self, a, b, weight=1):
        """Add or replace an edge; raises ValueError for a negative weight."""
        if weight < 0:
            raise ValueError(f"negative weight: {weight}")
        self.add_node(a)
        self.add_node(b)
        self._near[a][b] = weight
        if not self.directed:
            self._near[b][a] = weight

    def remove_node(self, node):
        """Remove a node and its edges; raises KeyError when it is not there."""
        del self._near[node]
        for near in self._near.values():
            near.pop(node, None)

    @property
    def nodes(self):
        return list(self._near)

    def neighbours(self, node):
        """``{neighbour: weight}`` of the edges that leave ``node``."""
        return dict(self._near[node])

    def edges(self):
        """``(a, b, weight)`` of every edge, once; undirected ones from the node that came first."""
        place = {node: n for n, node in enumerate(self._near)}
        return [
            (a, b, weight)
            for a, near in self._near.items()
            for b, weight in near.items()
            if self.directed or place[a] <= place[b]
        ]

    def degree(self, node):
        """How many edges leave the node; a loop on it counts twice in an undirected graph."""
        near = self._near[node]
        return len(near) + (node in near and not self.directed)

    def reversed(self):
        """The graph with every edge turned round."""
        turned = Graph(self.directed)
        for node in self._near:
            turned.add_node(node)
        for a, b, weight in self.edges():
            turned.add_edge(b, a, weight)
        return turned
