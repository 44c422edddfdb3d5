"""Data given in Python."""

from fedquilt.data.sources.given.load import Given

__all__ = ["Given"]
