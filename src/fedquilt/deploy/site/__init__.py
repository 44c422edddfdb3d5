"""The site side of a study."""
