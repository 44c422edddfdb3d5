"""SiteMemory: what a site keeps of one study on its own disk, and its ledger of all studies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedquilt.deploy.site.answers import Answers
from fedquilt.deploy.site.model import SiteModel
from fedquilt.deploy.site.states import SiteStates
from fedquilt.deploy.site.sum_record import StoredSumRecord
from fedquilt.deploy.study import Study
from fedquilt.privacy.ledger import LEDGER_FILE, PrivacyLedger
from fedquilt.privacy.site_policy import SitePolicy


@dataclass(frozen=True)
class SiteMemory:
    """States between rounds, the model received last, and which rounds and sums were answered."""

    states: SiteStates
    model: SiteModel
    answers: Answers
    sums: StoredSumRecord
    ledger: PrivacyLedger
    folder: Path
    earlier: tuple[str, ...] = ()  # hashes of the study before sites joined it

    @classmethod
    def of(
        cls,
        folder: Path,
        study: Study,
        policy: SitePolicy,
        work: Path,
        earlier: tuple[str, ...] = (),
    ) -> SiteMemory:
        """``folder`` is for this study, and ``work`` for all studies of the site."""
        return cls(
            SiteStates(folder, study.rules.kept_rounds),
            SiteModel(folder),
            Answers(folder, study.recipe.rounds, policy.max_answers),
            StoredSumRecord(folder),
            PrivacyLedger(work / LEDGER_FILE),
            folder,
            earlier,
        )
