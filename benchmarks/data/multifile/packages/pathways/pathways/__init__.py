"""Small graphs: paths, orders, components, spanning trees."""

from pathways.graph import Graph
from pathways.order import Cycle, topological
from pathways.search import reachable, shortest
from pathways.spanning import spanning_tree

__all__ = ["Cycle", "Graph", "reachable", "shortest", "spanning_tree", "topological"]
