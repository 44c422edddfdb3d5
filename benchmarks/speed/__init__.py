"""Seconds, memory and bytes of engines and of a deployed round."""
