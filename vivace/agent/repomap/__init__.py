"""A map of the repository: which files there are, what they define, and what of it matters for a task."""
