"""A number with a unit."""

from dataclasses import dataclass

from measures.convert import convert
from measures.units import find


@dataclass(frozen=True)
class Quantity:
    value: float
    unit: str

    @property
    def kind(self):
        return find(self.unit).kind

    def to(self, unit):
        """The same quantity in another unit."""
        return Quantity(convert(self.value, self.unit, unit), unit)

    def __add__(self, other):
        return Quantity(self.value + other.to(self.unit).value, self.unit)

    def __sub__(self, other):
        return Quantity(self.value - other.to(self.unit).value, self.unit)

    def __lt__(self, other):
        return self.value < other.to(self.unit).value
