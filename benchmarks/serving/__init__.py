"""What the service adds to a backend: round trips, streams, and itself in front of another server.

Everything is measured from outside: ``vivace serve`` runs as a process of its own, the clients below note when bytes
come, and the processor time is the kernel's. See docs/serving-benchmarks.md.
"""
