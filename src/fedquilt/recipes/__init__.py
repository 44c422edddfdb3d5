"""Recipes: the schema, the shipped files, and tables of published papers."""
