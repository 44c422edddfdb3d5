"""``fedquilt data prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.packed_files import write_cifar
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.data.sources.cifar10.load import Cifar10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_cifar(tmp_path / "data", monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare(*options: str) -> Any:
    result = CliRunner().invoke(app, ["data", "prepare", *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.usefixtures("folder")
def test_prepared_data_is_in_the_cache_of_runs() -> None:
    code, said = prepare("cifar10", "--from", "data")
    assert code == 0, said
    assert "cifar10: 200 training and 40 test images of 32 x 32 px, colour, 10 classes" in said
    assert "--cache" not in said
    (home,) = Path(".cache/fedquilt").glob("cifar10-*/")
    assert (home / "train_images.u8").stat().st_size == 200 * 3 * 32 * 32


@pytest.mark.usefixtures("folder")
def test_another_cache_and_settings() -> None:
    counts = [
        *("--set", "singles=2", "--set", "pairs=1"),
        *("--set", "test_singles=1", "--set", "test_pairs=0"),
    ]
    code, said = prepare("cifar10-composites", "--from", "data", "--to", "there", *counts)
    assert code == 0, said
    assert "65 training and 10 test images of 64 x 64 px" in said  # 10 * 2 + 45, and 10 * 1
    assert "use it in runs with --cache there" in said


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("cifar", "--from", "data"), "unknown data source 'cifar'; did you mean 'cifar10'?"),
        (("digits-mosaic", "--from", "data"), "'digits-mosaic' is generated without files"),
        (("cifar10", "--from", "nowhere"), "there is no folder nowhere"),
        (("cifar10", "--from", "."), "holds no cifar-10-batches-bin or cifar-10-binary.tar.gz"),
        (("medmnist", "--from", "data"), "data lacks flag settings: --set KEY=VALUE"),
        (
            ("cifar10-composites", "--from", "data", "--set", "single=2"),
            "data has no field 'single'; did you mean 'singles'?",
        ),
    ],
)
def test_mistakes_are_explained(options: tuple[str, ...], message: str) -> None:
    code, said = prepare(*options)
    assert code == 1
    assert message in said


@pytest.mark.usefixtures("folder")
def test_an_interruption_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: Cifar10, cache: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Cifar10, "load", interrupted)
    code, said = prepare("cifar10", "--from", "data")
    assert code == 130
    assert "run the same command again" in said
