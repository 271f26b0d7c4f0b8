"""The accents: items to tokens or messages and back, per model family."""
