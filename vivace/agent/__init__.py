"""The coder: turns an instruction and files into a checked, minimal change."""
