"""A site's half of a study."""
