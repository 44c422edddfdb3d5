"""The table of benchmarks/README.md is complete, and only tests in this folder use benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
GROUPS = ("speed", "correctness", "scale", "studies")
README = (BENCHMARKS / "README.md").read_text(encoding="utf-8")


def test_every_benchmark_is_in_the_table() -> None:
    modules = {
        ".".join(path.relative_to(BENCHMARKS).with_suffix("").parts)
        for folder in GROUPS
        for path in (BENCHMARKS / folder).rglob("*.py")
        if "__name__ ==" in path.read_text(encoding="utf-8")
    }
    commands = set(re.findall(rf"`((?:{'|'.join(GROUPS)})\.[a-z_.]+)", README))
    assert commands == modules


def test_every_result_file_is_linked_and_exists() -> None:
    files = {str(path.relative_to(BENCHMARKS)) for path in BENCHMARKS.rglob("*.csv")}
    assert set(re.findall(r"\((results/[^)]+)\)", README)) == files


def test_only_these_tests_import_benchmarks() -> None:
    importing = [
        path
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.parent != Path(__file__).parent
        and re.search(r"^\s*(from|import) benchmarks\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert importing == []
