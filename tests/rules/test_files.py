"""Files stay short enough to be read in one go; results name no folder of a machine."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "benchmarks", "docs")
LONGEST, LONGEST_METHOD = 300, 120
LARGE_METHODS = {"fedmlp.py": 159, "fedlsm.py": 159}  # several stages or components each


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_is_long(folder: str) -> None:
    counts = {path: line_count(path) for path in (ROOT / folder).rglob("*.py")}
    assert {path: count for path, count in counts.items() if count > LONGEST} == {}


def test_a_method_fits_on_two_screens() -> None:
    files = sorted((ROOT / "src" / "fedquilt" / "methods").glob("*.py"))
    assert files
    allowed = {path: LARGE_METHODS.get(path.name, LONGEST_METHOD) for path in files}
    assert [path for path in files if line_count(path) > allowed[path]] == []


def test_no_two_test_files_have_one_name() -> None:
    """Pytest imports test files by name: it refuses the second."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_result_names_a_folder_of_a_machine() -> None:
    """A command beside a result is one that a reader can repeat."""
    folders = re.compile(r"(?<![\w.])/(work|home|root|tmp|Users)/[\w./-]*")
    results = sorted((ROOT / "benchmarks" / "results").rglob("*.csv"))
    assert results
    found = {path.name: folders.findall(path.read_text(encoding="utf-8")) for path in results}
    assert [name for name, folder in found.items() if folder] == []
