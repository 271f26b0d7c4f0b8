"""Disjoint sets: which nodes belong together?"""


class DisjointSets:
    def __init__(self, members=()):
        self._above = {member: member for member in members}

    def find(self, member):
        """The one that stands for the set of ``member``."""
        root = member
        while self._above[root] != root:
            root = self._above[root]
        while self._above[member] != root:
            self._above[member], member = root, self._above[member]
        return root

    def join(self, a, b):
        """Put two sets together; tells whether they were two."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self._above[b] = a
        return True

    def groups(self):
        """The sets as lists, members in the order in which they came."""
        found = {}
        for member in self._above:
            found.setdefault(self.find(member), []).append(member)
        return list(found.values())
