"""A run from recipe to folder, and what is read from that folder again."""
