"""Settings in sections, read from text, laid over each other, with references between them."""

from layered.layers import Layers
from layered.parser import ConfigError, parse
from layered.writer import write

__all__ = ["ConfigError", "Layers", "parse", "write"]
