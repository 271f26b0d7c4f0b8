"""What a command may touch: one policy, and the means of this machine to hold it."""
