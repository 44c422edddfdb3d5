"""CSV label files, in which a blank cell means "not annotated"."""
