"""What the transcript is made of: each block keeps its own rows and lays out only what is new."""
