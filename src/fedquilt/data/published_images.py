"""What is said of a published data set's image files that cannot be used: which, and from where."""

from __future__ import annotations

from collections.abc import Sequence

from fedquilt.data.bad_image import UNREADABLE_IMAGE, BadImage
from fedquilt.data.image_cache import ImageFile
from fedquilt.data.problems import SHOWN_PLACES
from fedquilt.data.published import Origin
from fedquilt.errors import UserError


def bad_images_error(origin: Origin, bad: Sequence[tuple[ImageFile, BadImage]]) -> UserError:
    """Names the files, unlike the error for a user's own ones: what is published is no secret."""
    lines = [f"{origin.title}: image files that cannot be used: {len(bad):,}; nothing was loaded"]
    lines += [f"    {file.path}: {each.detail}" for file, each in bad[:SHOWN_PLACES]]
    if len(bad) > SHOWN_PLACES:
        lines.append(f"    ... and {len(bad) - SHOWN_PLACES:,} more")
    kinds = {each.kind for _, each in bad}
    lines += sorted(kind.advice for kind in kinds - {UNREADABLE_IMAGE})
    if UNREADABLE_IMAGE in kinds:
        lines.append(f"damaged files: get them again from {origin.place}")
    return UserError("\n".join(lines))
