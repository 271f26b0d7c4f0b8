"""What can be reached, and how it is reached best."""

import heapq
from collections import deque
from itertools import count


def reachable(graph, start):
    """The nodes that can be reached from ``start``, by their number of steps, itself first."""
    found, waiting = {start: None}, deque([start])
    while waiting:
        for near in graph.neighbours(waiting.popleft()):
            if near not in found:
                found[near] = None
                waiting.append(near)
    return list(found)


def shortest(graph, start, goal):
    """``(length, nodes)`` of a shortest path by weight; None where there is no path (Dijkstra)."""
    # The counter keeps nodes themselves from being compared.
    tie = count()
    waiting = [(0, next(tie), start, None)]
    came = {}
    while waiting:
        length, _, node, before = heapq.heappop(waiting)
        if node in came:
            continue
        came[node] = before
        if node == goal:
            return length, _back(came, goal)
        for near, weight in graph.neighbours(node).items():
            if near not in came:
                heapq.heappush(waiting, (length + weight, next(tie), near, node))
    return None


def distances(graph, start):
    """``{node: length}`` of the shortest paths to all nodes that can be reached."""
    return {node: shortest(graph, start, node)[0] for node in reachable(graph, start)}


def _back(came, node):
    path = []
    while node is not None:
        path.append(node)
        node = came[node]
    return path[::-1]
