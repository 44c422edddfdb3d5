"""Secrets of secure sums are in memory only: no file and no log of a study holds one."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest
from support.remote_sites import make_engine
from support.secure_study import FIVE, LossyChannel, secure_sites, secure_study, site_key
from support.tiny_federation import make_method

from fedquilt.deploy.secure import site_half
from fedquilt.training.rounds import run_rounds, start_server

LOST = "site-1"


def spellings(secret: bytes) -> list[bytes]:
    """As bytes, hexadecimal, base64 and a decimal number."""
    return [
        secret,
        secret.hex().encode(),
        base64.b64encode(secret),
        str(int.from_bytes(secret, "big")).encode(),
        str(int.from_bytes(secret, "little")).encode(),
    ]


def test_no_secret_is_written_or_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[site_half._Secrets] = []
    original = site_half._Secrets

    def noted(*arguments, **further):
        made.append(original(*arguments, **further))
        return made[-1]

    monkeypatch.setattr(site_half, "_Secrets", noted)
    caplog.set_level(logging.DEBUG)
    study = secure_study(make_method("fedavg-pl"), annotated=FIVE)

    def is_lost(site: str, kind: str, round_index: int) -> bool:
        return (site, kind, round_index) == (LOST, "train", 1)  # its masks have to be recovered

    channel = LossyChannel(secure_sites(study, tmp_path), is_lost)
    engine = make_engine(study, channel, tmp_path)
    server = start_server(study.recipe.method, study.task, engine)
    assert len(list(run_rounds(study.recipe.method, study.task, engine, server))) == 2
    assert len(made) == 5 * 3  # the survey and two rounds
    secrets = [site_key(name).private_bytes_raw() for name in study.site_names]
    for each in made:
        secrets += [each.own, each.sealing.private_bytes_raw(), each.masking.private_bytes_raw()]
        secrets += [share for pair in each.shares.values() for share in pair]
    assert len(secrets) > 100
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    everything = b"\n".join([*written, caplog.text.encode(), repr(made).encode()])
    assert b"unmask" in everything
    for secret in secrets:
        assert not any(text in everything for text in spellings(secret))
