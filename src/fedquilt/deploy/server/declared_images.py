"""DeclaredImages: how many images each site trains on, which caps the weight of its updates."""

from __future__ import annotations

from pathlib import Path

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.payload import Sum, Update
from fedquilt.core.tree import leaves
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.study import Study
from fedquilt.runs.run_folder import RunFolder

SITES_FILE = "sites.json"  # in the run folder
MOST_IMAGES = 10**9


class DeclaredImages:
    """A site's number of images: as agreed in the study, or else as the site first declared it.

    A site declares it with its first answer, before it has seen any other's, and may not raise it
    later. Without an agreement in the study, a site can still declare too many: the server shows
    every declaration.
    """

    def __init__(self, study: Study, path: Path | None = None) -> None:
        self._study, self._path = study, path
        self._declared: dict[str, int] = _read(path) if path is not None else {}

    def of(self, site: str) -> int | None:
        agreed = self._study.site(site).images
        return self._declared.get(site) if agreed is None else agreed

    def declare(self, site: str, images: object) -> None:
        """Keep a site's first declaration; raise RefusedUpdate if there is none or it grew."""
        if site not in self._study.site_names or self._study.site(site).images is not None:
            return
        if type(images) is not int or not 1 <= images <= MOST_IMAGES:
            raise RefusedUpdate(
                f"client {site!r} must declare its number of images, 1 to {MOST_IMAGES:g}, because "
                f"the study does not agree on one; found {str(images)[:40]!r}"
            )
        first = self._declared.setdefault(site, images)
        if images > first:
            raise RefusedUpdate(
                f"client {site!r} now declares {images} images, and {first} before; a site's data "
                "must not change during a study"
            )
        if self._path is not None and _read(self._path) != self._declared:
            write_json(self._path, self._declared)

    def notice(self) -> str | None:
        """Return what sites declared where the study does not agree on a number."""
        if not self._declared:
            return None
        found = ", ".join(f"{site} {count:,}" for site, count in sorted(self._declared.items()))
        return (
            f"the weights of updates are capped by what sites declared: {found}; give `images` in "
            "the study's [[sites]] to agree on the numbers"
        )


def check_survey_counts(update: Update, site: str, images: int | None) -> None:
    """Raise RefusedUpdate if a count in a survey's answer is negative or above the images."""
    for name, part in update.items():
        for _, leaf in leaves(part.value) if isinstance(part, Sum) else ():
            low, high = (float(end) for end in leaf.aminmax())
            if low < 0 or (images is not None and high > images):
                raise RefusedUpdate(
                    f"client {site!r}, part {name!r}: a count of {low if low < 0 else high:g} "
                    f"cannot be right for {images} images"
                )


def _read(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    found = RunFolder(path.parent).read_json(path)
    if not isinstance(found, dict) or any(type(count) is not int for count in found.values()):
        raise UserError(f"{path} is damaged: expected a number of images by site")
    return found
