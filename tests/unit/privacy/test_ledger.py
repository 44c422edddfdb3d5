from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedquilt.core.errors import UserError
from fedquilt.core.gaussian_accountant import GaussianRelease, epsilon_of
from fedquilt.privacy.ledger import LEDGER_FILE, Charge, PrivacyLedger

STEP = Charge("study a", 0, ("body", "head"), "image", 2.0, 0.1, 30)
PARTS = Charge("study b", 3, ("prototypes",), "image", 4.0, 1.0, 1)
OPEN = Charge("study b", 3, ("body",), "image")


def test_epsilon_adds_up_over_rounds_and_studies(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / LEDGER_FILE)
    assert ledger.spent(1e-5, "image") == 0.0
    ledger.charge([STEP])
    ledger.charge([STEP, PARTS, OPEN])
    steps, once = GaussianRelease(2.0, 0.1, 60), GaussianRelease(4.0)
    assert ledger.spent(1e-5, "image") == pytest.approx(epsilon_of([steps, once], 1e-5))
    assert ledger.spent(1e-5, "image", ["study b"]) == pytest.approx(epsilon_of([once], 1e-5))
    more = ledger.spent(1e-5, "image", ["study b"], more=[PARTS])
    assert more == pytest.approx(epsilon_of([once, once], 1e-5))
    again = PrivacyLedger(tmp_path / LEDGER_FILE)
    assert again.charges == (STEP, STEP, PARTS, OPEN)
    assert again.spent(1e-5, "image") == ledger.spent(1e-5, "image")


def test_noise_for_images_proves_nothing_about_patients(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / LEDGER_FILE)
    ledger.charge([Charge("study", 0, ("body",), "patient", 2.0, 0.1, 30)])
    assert ledger.spent(1e-5, "patient") == ledger.spent(1e-5, "image") < 10
    ledger.charge([STEP])
    assert math.isinf(ledger.spent(1e-5, "patient"))
    assert ledger.spent(1e-5, "patient", ["study"]) < 10


@pytest.mark.parametrize("harm", ["cut", "altered", "removed", "not JSON"])
def test_a_ledger_that_was_changed_is_not_believed(harm: str, tmp_path: Path) -> None:
    path = tmp_path / LEDGER_FILE
    PrivacyLedger(path).charge([STEP, PARTS, OPEN])
    lines = path.read_text().splitlines()
    changed = {
        "cut": [*lines[:2], lines[2][:20]],
        "altered": [lines[0].replace("30", "3"), *lines[1:]],
        "removed": [lines[0], lines[2]],
        "not JSON": ["[]", *lines],
    }[harm]
    path.write_text("\n".join(changed) + "\n")
    with pytest.raises(UserError, match="Restore it from a backup"):
        PrivacyLedger(path)
