"""What is drawn around cells."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Border:
    """``left``, ``between`` and ``right`` stand in every row; a rule is drawn of ``line`` and ``cross``."""

    left: str
    between: str
    right: str
    line: str = ""
    cross: str = ""
    outer: bool = False

    def rule(self, widths):
        """The horizontal rule for columns of these widths; empty where the style has none."""
        if not self.line:
            return ""
        middle = self.cross.join(self.line * width for width in widths)
        return self._edge(self.left) + middle + self._edge(self.right)

    def row(self, cells):
        return (self.left + self.between.join(cells) + self.right).rstrip()

    def _edge(self, edge):
        return edge.replace("|", "+").replace(" ", self.line)


STYLES = {
    "plain": Border("", "  ", "", "-", "  "),
    "grid": Border("| ", " | ", " |", "-", "-+-", outer=True),
    "bare": Border("", "  ", ""),
}
