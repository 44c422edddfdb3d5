"""DataPin: which images and labels a site has taken part with, to notice when they change."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.dataset import MultiLabelDataset

log = logging.getLogger(__name__)

PIN_FILE = "data.json"  # beside the site's states


class ChangedData(UserError):
    """Raised when a site's state between rounds belongs to other images or labels."""


@dataclass(frozen=True)
class DataPin:
    """The number of images, and a hash of their names, patients and labels in their order."""

    images: int
    hash: str

    @classmethod
    def of(cls, dataset: MultiLabelDataset) -> DataPin:
        digest = hashlib.sha256()
        digest.update(json.dumps([dataset.ids, dataset.groups, dataset.classes]).encode())
        digest.update(dataset.known.numpy().tobytes())
        digest.update((dataset.labels * dataset.known).numpy().tobytes())
        return cls(len(dataset), digest.hexdigest())


def check_pin(folder: Path, dataset: MultiLabelDataset, *, has_state: bool) -> bool:
    """Compare a site's data with those it took part with; return whether they have changed.

    Raise ChangedData if the site keeps something between rounds: it belongs to the images of
    before, in their order, and would be used for others.
    """
    now, before = DataPin.of(dataset), _read(folder)
    if before is None or before == now:
        return False
    change = f"{counted(before.images, 'image')} then, {now.images:,} now"
    if before.images == now.images:
        change = f"{counted(now.images, 'image')} as then, but other names, labels or another order"
    if has_state:
        raise ChangedData(
            f"the site's data have changed since it last took part: {change}. What it keeps "
            "between rounds belongs to the images of then. Restore the label file and the images. "
            f"If the study agrees that this site goes on with the new data, move {folder} away: "
            "the site then starts without what it kept"
        )
    log.warning("the site's data have changed since it last took part: %s", change)
    return True


def pin_data(folder: Path, dataset: MultiLabelDataset) -> DataPin:
    now = DataPin.of(dataset)
    if _read(folder) != now:
        write_json(folder / PIN_FILE, asdict(now))
    return now


def _read(folder: Path) -> DataPin | None:
    path = folder / PIN_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return DataPin(int(content["images"]), str(content["hash"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged ({error}): it cannot be said whether the site's data are those of "
            "the rounds before; if they are, delete this file"
        ) from error
