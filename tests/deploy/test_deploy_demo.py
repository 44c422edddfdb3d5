"""``make deploy-demo``: every round is shown, a site joins in mid-study, and one is excluded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedquilt.deploy.audit_chain import read_events, verify_chain
from fedquilt.deploy.nvflare import demo


def test_a_site_joins_and_one_is_excluded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "demo"
    demo.main(out)
    said = capfd.readouterr()
    shown = re.findall(r"^round (\d+) of 14: (.*)$", said.out + said.err, re.MULTILINE)
    assert [int(number) for number, _ in shown] == list(range(1, 15))
    assert demo.JOINS not in shown[0][1]
    assert demo.JOINS in shown[-1][1]
    assert "client-0 (excluded: its key may be stolen)" in said.out + said.err
    run = out / "kits" / "server" / "fedquilt" / "runs" / "digits-demo"
    assert verify_chain(run / "audit.jsonl").damage is None
    events, _ = read_events(run / "audit.jsonl")
    decided = [each["kind"] for each in events if each["event"] == "decided"]
    assert decided == ["pause", "resume", "exclude"]
    (last,) = (number for number, each in enumerate(events) if each.get("kind") == "exclude")
    later = [each["event"] for each in events[last + 1 :] if each.get("site") == demo.EXCLUDED]
    assert "received" not in later
