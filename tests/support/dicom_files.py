"""DICOM files of a few pixels, for tests of the DICOM reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
CT_IMAGE = "1.2.840.10008.5.1.4.1.1.2"


def write_dicom(
    path: Path, values: np.ndarray, sop_class: str = SECONDARY_CAPTURE, **elements: Any
) -> Path:
    """Write an uncompressed grey image of these stored values; ``elements`` are set last."""
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = sop_class
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid()
    data.PatientName = "Doe^Jane"
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.Rows, data.Columns = values.shape[:2]
    data.BitsAllocated = data.BitsStored = 8 * values.itemsize
    data.HighBit, data.PixelRepresentation = data.BitsStored - 1, int(values.dtype.kind == "i")
    data.PixelData = values.tobytes()
    for name, value in elements.items():
        setattr(data, name, value)
    data.save_as(path, enforce_file_format=True)
    return path
