"""Feature skew: clients differ in how their images look, as hospitals with other scanners do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.data.dataset import LabelView
from fedquilt.data.partitions.partition import Assignment, Partition
from fedquilt.data.partitions.strata import spread_strata

AT_ONCE = 512  # images: they may be memory-mapped


@dataclass(frozen=True, kw_only=True)
class FeatureSkew(Partition):
    """Sorts images into domains by how they look, and spreads each domain in Dirichlet shares.

    The domains are bands of equal size of the images' mean brightness or contrast, or the sites of
    the data. Labels differ between clients only as far as they differ between domains.
    """

    clients: int
    concentration: float  # small: a client holds few domains; large: even
    by: Literal["brightness", "contrast", "site"] = "brightness"
    domains: int = 5  # bands of brightness or contrast
    smallest_client: int = 10  # draw again until every client has this many images
    attempts: int = 100

    def assign(self, data: LabelView, seed: int) -> Assignment:
        return spread_strata(
            _sites(data) if self.by == "site" else self._bands(data),
            clients=self.clients,
            concentration=self.concentration,
            smallest_client=self.smallest_client,
            attempts=self.attempts,
            seed=seed_for(seed, "partition", "feature-skew"),
        )

    def _bands(self, data: LabelView) -> npt.NDArray[np.int64]:
        images: Tensor | None = getattr(data, "images", None)
        if images is None:
            raise UserError(
                f"feature-skew by {self.by} looks at the images, and only their labels are read "
                "here; use by = 'site', or another partition"
            )
        if not 1 <= self.domains <= len(images):
            raise UserError(
                f"feature-skew needs between 1 and {len(images)} domains, one image each at least; "
                f"found {self.domains}"
            )
        values = np.concatenate([self._values(part) for part in images.split(AT_ONCE)])
        rank = np.empty(len(values), dtype=np.int64)
        rank[np.argsort(values, kind="stable")] = np.arange(len(values))
        return rank * self.domains // len(values)

    def _values(self, images: Tensor) -> npt.NDArray[np.float32]:
        pixels = images.float().flatten(1)
        found = pixels.mean(1) if self.by == "brightness" else pixels.std(1)
        return np.asarray(found.numpy())


def _sites(data: LabelView) -> npt.NDArray[np.int64]:
    if data.sites is None:
        raise UserError(
            "feature-skew by site needs the site of each image; name the column that holds it, or "
            "use by = 'brightness'"
        )
    return np.unique(data.sites, return_inverse=True)[1].astype(np.int64)
