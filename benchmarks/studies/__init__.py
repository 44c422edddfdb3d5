"""Accuracy of methods under one changed setting at a time."""
