"""Checks of a user's folder before any training, and the map of who annotates what."""
