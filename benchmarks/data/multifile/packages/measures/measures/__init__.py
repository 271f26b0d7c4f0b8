"""Quantities with units: parse them, convert them, add them up, write them out."""

from measures.convert import convert
from measures.parse import parse
from measures.quantity import Quantity
from measures.show import show

__all__ = ["Quantity", "convert", "parse", "show"]
