"""Image files to arrays: decoding, DICOM, bit depth and the cache of decoded images."""
