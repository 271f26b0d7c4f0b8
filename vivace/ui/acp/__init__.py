"""The agent in editors: a server of the Agent Client Protocol, version 1, over standard input and output."""
