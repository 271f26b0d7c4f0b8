"""Blind comparison: which of two results of the same task is better, without knowing whose they are."""
