"""CSV label files, in which a blank cell means that nobody annotated it."""
