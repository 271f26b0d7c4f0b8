"""The speed: tokens in, tokens out, in a process of its own."""
