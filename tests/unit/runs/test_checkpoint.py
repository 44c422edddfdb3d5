"""Checkpoints are bitwise exact, atomic, and damage to them is detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import tensor

from fedquilt.core.tree import same_bits
from fedquilt.runs.checkpoint import Checkpoints


def server(round_count: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(round_count)
    return {
        "weights": {"w": torch.randn(2, 3, generator=generator), "b": tensor(float(round_count))},
        "age": tensor([round_count]),
    }


def state(client: str, round_count: int) -> dict[str, object]:
    return {
        "method": {"tags": tensor([[round_count, -1]], dtype=torch.int8)},
        "optimizer": {"w": {"step": tensor(float(round_count)), "exp_avg": torch.ones(2)}},
        "name": torch.tensor([ord(letter) for letter in client]),
    }


def run_to(folder: Path, last: int, clients: tuple[str, ...] = ("a", "b")) -> Checkpoints:
    """Run ``last`` rounds and save after each."""
    checkpoints = Checkpoints(folder)
    for round_count in range(1, last + 1):
        run_round(checkpoints, round_count, clients)
        checkpoints.save()
    return checkpoints


def run_round(
    checkpoints: Checkpoints, round_count: int, clients: tuple[str, ...] = ("a", "b")
) -> None:
    for client in clients:
        checkpoints.put(client, state(client, round_count))
    checkpoints.advance(round_count, server(round_count))


def assert_restores(folder: Path, round_count: int, complaint_count: int = 0) -> list[str]:
    checkpoints = Checkpoints(folder)
    saved, complaints = checkpoints.restore()
    assert saved is not None
    assert saved.round_count == round_count
    assert same_bits(saved.server, server(round_count))
    for client in ("a", "b"):
        assert same_bits(checkpoints.get(client), state(client, round_count))
    assert len(complaints) == complaint_count, complaints
    return complaints


def stored(folder: Path) -> set[Path]:
    """The files that checkpoints refer to."""
    return {*(folder / "objects").iterdir(), *folder.glob("states-*.pack")}


def manifests(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("round-*.json"))


def damaged(whole: bytes) -> Iterator[bytes]:
    """Yield the content truncated, or with one byte altered, at many places."""
    last = len(whole) - 1  # without the newline a manifest is still valid
    for offset in range(0, last, max(1, last // 40)):
        yield whole[:offset]
        for mask in (0x01, 0x80):
            yield whole[:offset] + bytes([whole[offset] ^ mask]) + whole[offset + 1 :]


def test_an_empty_folder_restores_nothing(tmp_path):
    assert Checkpoints(tmp_path / "new").restore() == (None, [])
    Checkpoints(tmp_path / "new").save()
    assert manifests(tmp_path / "new") == []


def test_a_run_is_restored_bit_for_bit(tmp_path):
    run_to(tmp_path, 3)
    assert_restores(tmp_path, 3)


def test_a_client_before_its_first_round_has_no_state(tmp_path):
    assert run_to(tmp_path, 1).get("never seen") == {}


def test_a_client_outside_the_cohort_keeps_its_state(tmp_path):
    checkpoints = run_to(tmp_path, 1)
    for round_count in (2, 3, 4):
        run_round(checkpoints, round_count, clients=("a",))
        checkpoints.save()
    restored = Checkpoints(tmp_path)
    restored.restore()
    assert same_bits(restored.get("b"), state("b", 1))
    assert same_bits(restored.get("a"), state("a", 4))


def test_a_state_without_tensors_is_restored_as_empty(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.put("a", {"method": {}})
    checkpoints.advance(1, server(1))
    checkpoints.save()
    restored = Checkpoints(tmp_path)
    assert restored.restore()[0] is not None
    assert restored.get("a") == {}


def test_saving_twice_changes_nothing(tmp_path):
    checkpoints = run_to(tmp_path, 2)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    checkpoints.save()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_interrupted_round_is_not_saved(tmp_path):
    checkpoints = run_to(tmp_path, 2)
    checkpoints.put("a", state("a", 3))  # interrupted before "b" and the server
    assert same_bits(checkpoints.get("a"), state("a", 3))
    checkpoints.save()  # as on Ctrl-C
    assert_restores(tmp_path, 2)


def test_restoring_drops_an_incomplete_round(tmp_path):
    checkpoints = run_to(tmp_path, 2)
    checkpoints.put("a", state("a", 3))
    checkpoints.restore()
    assert same_bits(checkpoints.get("a"), state("a", 2))


def test_saving_within_a_round_does_not_disturb_it(tmp_path):
    checkpoints = run_to(tmp_path, 2)
    checkpoints.put("a", state("a", 3))
    checkpoints.save()
    checkpoints.put("b", state("b", 3))
    checkpoints.advance(3, server(3))
    checkpoints.save()
    assert_restores(tmp_path, 3)


def test_a_process_killed_before_saving_resumes_from_the_previous_checkpoint(tmp_path):
    run_round(run_to(tmp_path, 2), 3)
    assert_restores(tmp_path, 2)


def test_old_checkpoints_and_their_objects_are_pruned(tmp_path):
    run_to(tmp_path, 5)
    assert manifests(tmp_path) == ["round-000004.json", "round-000005.json"]
    # Two checkpoints, each with a server and a pack of two clients.
    assert len(list((tmp_path / "objects").iterdir())) == 2
    assert len(list(tmp_path.glob("states-*.pack"))) == 2


def test_partial_files_are_ignored(tmp_path):
    run_to(tmp_path, 2)
    (tmp_path / ".round-000003.json.77.partial").write_text('{"format": 1')
    (tmp_path / "round-000009.json.partial").write_text("{}")
    (tmp_path / "objects" / ".abc.safetensors.77.partial").write_bytes(b"half")
    assert_restores(tmp_path, 2)


def test_every_damage_to_the_newest_manifest_falls_back(tmp_path):
    run_to(tmp_path, 3)
    path = tmp_path / "round-000003.json"
    whole = path.read_bytes()
    for content in damaged(whole):
        path.write_bytes(content)
        (complaint,) = assert_restores(tmp_path, 2, complaint_count=1)
        assert complaint.startswith("checkpoint round-000003.json is not used: it ")


@pytest.mark.parametrize("owner", ["server", "client"])
def test_every_damage_to_an_object_falls_back(tmp_path, owner):
    run_to(tmp_path, 2)
    before = stored(tmp_path)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.restore()
    run_round(checkpoints, 3)
    checkpoints.save()
    suffix = ".pack" if owner == "client" else ".safetensors"
    (path,) = (each for each in stored(tmp_path) - before if each.suffix == suffix)
    for content in damaged(path.read_bytes()):
        path.write_bytes(content)
        (complaint,) = assert_restores(tmp_path, 2, complaint_count=1)
        assert path.name in complaint
        assert "was cut short or altered" in complaint


def test_a_missing_object_falls_back(tmp_path):
    run_to(tmp_path, 2)
    before = stored(tmp_path)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.restore()
    run_round(checkpoints, 3)
    checkpoints.save()
    for path in stored(tmp_path) - before:
        path.unlink()
        break
    (complaint,) = assert_restores(tmp_path, 2, complaint_count=1)
    assert "cannot be read" in complaint


def test_a_checkpoint_of_another_format_is_not_used(tmp_path, monkeypatch):
    run_to(tmp_path, 1)
    monkeypatch.setattr("fedquilt.runs.checkpoint.READABLE", (3,))
    monkeypatch.setattr("fedquilt.runs.checkpoint.FORMAT", 3)
    saved, (complaint,) = Checkpoints(tmp_path).restore()
    assert saved is None
    assert "format 2 is not 3" in complaint


def test_if_both_are_damaged_nothing_is_restored_and_both_are_named(tmp_path):
    run_to(tmp_path, 3)
    for name in manifests(tmp_path):
        (tmp_path / name).write_text("{}")
    saved, complaints = Checkpoints(tmp_path).restore()
    assert saved is None
    assert [complaint.split()[1] for complaint in complaints] == [
        "round-000003.json",
        "round-000002.json",
    ]


def damage_objects(folder: Path) -> None:
    for path in stored(folder):
        path.write_bytes(b"")


def damage_manifests(folder: Path) -> None:
    for name in manifests(folder):
        (folder / name).write_text("{}")


def damage_newest_objects(folder: Path) -> None:
    """Damage the objects that only round 3 uses."""
    newest = (folder / "round-000003.json").read_text()
    older = (folder / "round-000002.json").read_text()
    for path in stored(folder):
        if path.stem in newest and path.stem not in older:
            path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_objects, damage_manifests, damage_newest_objects])
def test_a_run_resumes_after_damage_and_its_new_checkpoints_are_valid(tmp_path, damage):
    """Rounds are repeated bit for bit, so the same objects are stored again; all must be intact."""
    run_to(tmp_path, 3)
    damage(tmp_path)
    checkpoints = Checkpoints(tmp_path)
    saved, complaints = checkpoints.restore()
    assert complaints
    first = 0 if saved is None else saved.round_count
    for round_count in range(first + 1, 6):
        run_round(checkpoints, round_count)
        checkpoints.save()
        for client in ("a", "b"):  # as the next round reads them
            assert same_bits(checkpoints.get(client), state(client, round_count))
        assert_restores(tmp_path, round_count)
