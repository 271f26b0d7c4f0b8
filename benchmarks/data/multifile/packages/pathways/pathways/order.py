"""Orders of directed graphs."""


class Cycle(ValueError):
    """There is no order: ``nodes`` lead back to the first of them."""

    def __init__(self, nodes):
        super().__init__(" -> ".join(map(str, [*nodes, nodes[0]])))
        self.nodes = nodes


def topological(graph):
    """The nodes so that every edge leads forward; among those that are free, the one that was added first.

    Raises Cycle.
    """
    incoming = dict.fromkeys(graph.nodes, 0)
    for _, b, _ in graph.edges():
        incoming[b] += 1
    order = []
    while len(order) < len(incoming):
        free = next((node for node in graph.nodes if incoming[node] == 0), None)
        if free is None:
            raise Cycle(_cycle(graph, {node for node in incoming if incoming[node] > 0}))
        incoming[free] = -1
        order.append(free)
        for near in graph.neighbours(free):
            incoming[near] -= 1
    return order


def _cycle(graph, among):
    """A cycle inside of ``among``, each of whose nodes has an edge that comes from another of them."""
    before = {b: a for a, b, _ in graph.edges() if a in among and b in among}
    node, seen = next(node for node in graph.nodes if node in among), []
    while node not in seen:
        seen.append(node)
        node = before[node]
    return seen[seen.index(node) :][::-1]


def layers(graph):
    """The nodes in layers: each in the first one after those of all that lead to it. Raises Cycle."""
    depth = {}
    back = graph.reversed()
    for node in topological(graph):
        depth[node] = max((depth[a] + 1 for a in back.neighbours(node)), default=0)
    found = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        found[depth[node]].append(node)
    return found
