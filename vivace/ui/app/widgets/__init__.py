"""The widgets around the transcript, one per file."""
