"""What needs the user's word: decided on the parsed command, remembered by scope, the same for every tool."""
