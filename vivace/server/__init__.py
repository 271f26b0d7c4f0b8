"""The door: HTTP, server-sent events and WebSockets in front of a gateway."""
