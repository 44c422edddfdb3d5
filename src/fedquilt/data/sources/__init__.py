"""The data sets, one folder each: ``SOURCES`` is the one table of their names."""

SOURCES = {
    "digits-mosaic": "fedquilt.data.sources.digits_mosaic.load:DigitsMosaic",
    "folder": "fedquilt.data.sources.folder.load:Folder",
}
