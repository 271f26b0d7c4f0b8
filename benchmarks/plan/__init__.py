"""The planner against measured rows: committed data, and the command that makes it."""
