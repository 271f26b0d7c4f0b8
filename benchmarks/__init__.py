"""Comparisons and quality runs; their results are committed as data and every table is made from it."""
