"""A user's own images and label file."""

from fedquilt.data.sources.folder.load import Folder

__all__ = ["Folder"]
