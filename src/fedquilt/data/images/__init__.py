"""Image files: finding and decoding them, DICOM, bit depth and the cache of decoded images."""
