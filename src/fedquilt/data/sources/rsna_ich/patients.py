"""The patient of each CT slice, from the pseudonym in its DICOM file or from a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedquilt.data.images.bad_image import NEEDS_PYDICOM, UNREADABLE_IMAGE, BadImage
from fedquilt.data.images.cache import ImageFile, decode_in_order
from fedquilt.data.published.image_table import ImageTable, bad_images_error
from fedquilt.data.published.origin import Origin
from fedquilt.data.published.prepared import Chunks, prepare_arrays
from fedquilt.data.published.tables import with_groups

WIDTH = 64  # bytes stored per pseudonym; DICOM allows 64 characters


def patients_of_files(files: Sequence[ImageFile], cache: Path, origin: Origin) -> tuple[str, ...]:
    """RSNA's pseudonyms, read once from the files' headers and cached."""
    try:
        import pydicom  # noqa: F401
    except ImportError:
        raise BadImage(NEEDS_PYDICOM, "pydicom is not installed") from None

    def chunks() -> Chunks:
        bad = []
        for file, result in decode_in_order(files, _patient, "reading patients"):
            if isinstance(result, BadImage):
                bad.append((file, result))
            elif not bad:
                row = np.zeros((1, WIDTH), np.uint8)
                raw = result.encode()[:WIDTH]
                row[0, : len(raw)] = np.frombuffer(raw, np.uint8)
                yield "patients", row
        if bad:
            raise bad_images_error(origin, bad)

    paths = [file.path for file in files]
    rows = prepare_arrays(cache, "rsna-ich-patients", paths, {"version": 1}, chunks)["patients"]
    return tuple(bytes(row).rstrip(b"\0").decode() for row in rows.numpy())


def _patient(path: Path) -> str:
    from pydicom import dcmread

    try:
        return str(dcmread(path, stop_before_pixels=True, specific_tags=["PatientID"]).PatientID)
    except Exception as error:  # malformed bytes raise nearly any exception, see ``decode_image``
        detail = f"does not name its patient ({type(error).__name__})"
        raise BadImage(UNREADABLE_IMAGE, detail) from None


def patients_of_table(origin: Origin, table: ImageTable, path: Path) -> ImageTable:
    """Add the patients from a CSV file with the columns ID and PatientID, for converted images."""
    return with_groups(origin, table, path, ("ID", "PatientID"), ("slice", "slices"))
