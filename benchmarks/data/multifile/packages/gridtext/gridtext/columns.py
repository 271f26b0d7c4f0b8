"""How a column looks."""

from dataclasses import dataclass

from gridtext.cells import clipped, shown, wrapped


@dataclass(frozen=True)
class Column:
    """``most`` is the greatest width; longer text is wrapped, or clipped where ``wrap`` is off."""

    title: str
    align: str = "left"
    most: int | None = None
    wrap: bool = True
    digits: int = 2

    def lines(self, value):
        """The lines of one cell, not padded."""
        text = shown(value, self.digits)
        if self.most is None:
            return text.split("\n")
        return wrapped(text, self.most) if self.wrap else [clipped(line, self.most) for line in text.split("\n")]

    def width(self, values):
        """Width that the title and all values need."""
        texts = [line for value in values for line in self.lines(value)]
        return max(len(text) for text in [*self.lines(self.title), *texts])

    def pad(self, text, width):
        if self.align == "right":
            return text.rjust(width)
        if self.align == "center":
            return text.center(width)
        return text.ljust(width)
