"""vivace: code edits at the speed of thought from models that you run yourself."""

__version__ = "0.1.0"
