"""Joining: the server's side of an amendment, by which sites join a running study."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation
from fedquilt.deploy.amendment import Amendment
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.server.result import site_allocation
from fedquilt.deploy.study import Study
from fedquilt.runs.run_folder import RunFolder


def pending_amendment(
    folder: RunFolder, study: Study, amendments: Sequence[Amendment], departed: Collection[str]
) -> Amendment | None:
    """Return the amendment that the run in the folder has not taken up yet.

    Raise UserError if a site has not agreed to it and still takes part.
    """
    if not folder.partition.exists():
        return None
    saved = Allocation.load(folder.partition).hash
    for each in amendments:
        if each.after.hash == study.hash and site_allocation(each.before).hash == saved:
            unsigned = [name for name in each.without if name not in departed]
            if unsigned:
                raise UserError(
                    f"{', '.join(unsigned)} has not agreed to the amendment and takes part; have "
                    "it agree, or exclude it first"
                )
            return each
    return None


def require_surveyed(amendment: Amendment, answered: Collection[str]) -> None:
    """Raise TooFewSites unless the joining sites have said what they annotate."""
    absent = [name for name in amendment.joining if name not in answered]
    if absent:
        raise TooFewSites(
            f"{', '.join(absent)} joins the study and has not answered the survey: start "
            f"{'it' if len(absent) == 1 else 'them'}, and submit again with --resume"
        )
