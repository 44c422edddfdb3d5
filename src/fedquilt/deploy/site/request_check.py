"""RequestCheck: whether a request is part of the study that a site agreed to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.core.shown_text import shown
from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.messages import EVERY_SITE, SURVEY, TRAIN
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.deploy.site.leaving import check_takes_part
from fedquilt.deploy.study import Study
from fedquilt.privacy.site_policy import SitePolicy


@dataclass(frozen=True)
class RequestCheck:
    """The study, the site's policy in it, and the folder that says whether it has left."""

    study: Study
    site: str
    policy: SitePolicy
    folder: Path

    def request(self, facts: Mapping[str, Any], kinds: Collection[str]) -> None:
        """Raise RefusedRequest unless the study asks for this, and the policy accepts the study."""
        if facts.get("version") != VERSION:
            raise RefusedRequest(
                f"the server runs fedquilt {facts.get('version')}, this site {VERSION}; install "
                "the same version on both"
            )
        if facts.get("study") != self.study.hash:
            raise RefusedRequest("this is not the study that the site's kit was made for")
        if facts.get("site") not in (self.site, EVERY_SITE):
            raise RefusedRequest(f"this request is for another site, not for {self.site!r}")
        kind = facts.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            raise RefusedRequest(f"unknown request {shown(kind, limit=40)!r}")
        check_takes_part(self.folder)
        recipe = self.study.recipe
        refusal = self.policy.refuses_method(recipe.method)
        refusal = refusal or self.policy.refuses_summation(recipe.summation)
        refusal = refusal or self.policy.refuses_privacy(recipe.privacy)
        if refusal:
            raise RefusedRequest(refusal)
        index, rounds = facts.get("round"), recipe.rounds
        # A network is judged after a round; a study may stop early.
        expected = range(rounds) if kind in (SURVEY, TRAIN) else range(rounds + 1)
        if type(index) is not int or index not in expected:
            raise RefusedRequest(f"the study has no round {index!r}")
