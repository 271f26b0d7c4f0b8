"""The forms in which models write edits that are no whole file: hunks, how they are read, placed and constrained."""
