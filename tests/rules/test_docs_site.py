"""The documentation site builds without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.markdown_pages import DOCS, ROOT


def test_site_builds_without_warnings(tmp_path: Path):
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "doctrees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    for page in DOCS:
        place = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (tmp_path / "site" / place).is_file()
