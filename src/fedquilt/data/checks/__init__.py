"""Checks of a user's images and labels before training, and the annotation map."""
