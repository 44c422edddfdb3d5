"""A user's own folder of images and label file."""

from fedquilt.data.sources.folder.load import Folder

__all__ = ["Folder"]
