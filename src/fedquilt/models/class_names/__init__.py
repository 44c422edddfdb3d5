"""Vectors of class names, from their spelling, a file or a text encoder."""
