"""Class names as vectors, from their spelling, a file or a text encoder."""
