"""Measurements of the agent beyond its task sets."""
