"""The turns of a conversation: what the user says, what the model does about it, and how either is interrupted."""
