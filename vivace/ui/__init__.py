"""The faces: what a person or a program sees."""
