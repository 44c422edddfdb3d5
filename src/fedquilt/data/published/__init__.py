"""Shared code of published data sets: label tables, splits, prepared arrays, error messages."""
