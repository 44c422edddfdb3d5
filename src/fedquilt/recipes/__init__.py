"""Recipes: the schema, shipped files, and the published tables of papers."""
