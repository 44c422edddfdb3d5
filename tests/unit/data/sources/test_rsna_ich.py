"""RSNA's haemorrhage challenge from its table and its DICOM slices, or converted images."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from support.published_folders import (
    ICH_DAMAGED,
    ICH_SLICES,
    write_ich_table,
    write_images,
    write_rsna_ich,
    write_slice,
)

from fedquilt.core.errors import UserError
from fedquilt.data.images.bad_image import BadImage
from fedquilt.data.sources.rsna_ich import slices
from fedquilt.data.sources.rsna_ich.labels import SUBTYPES, keep_healthy, read_rows
from fedquilt.data.sources.rsna_ich.load import RsnaIch
from fedquilt.data.sources.rsna_ich.slices import Windows, decode_slice, read_hounsfield

pytest.importorskip("pydicom")

WINDOWS = ((40.0, 80.0), (80.0, 200.0), (600.0, 2800.0))


def make(root: Path, **settings: object) -> RsnaIch:
    usual = {"folder": str(root), "size": 4, "test_share": 0.5}
    return RsnaIch(**(usual | settings))  # type: ignore[arg-type]


def test_rows_become_labels_and_repeated_rows_count_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fedquilt")
    table = read_rows(RsnaIch.origin, write_ich_table(tmp_path) / "stage_2_train.csv")
    assert table.ids == (*ICH_SLICES, ICH_DAMAGED)
    assert table.lines == (2, 8, 14, 20, 26, 32, 38)  # six rows each, after the header
    assert table.classes == SUBTYPES  # without "any"
    found = [{SUBTYPES[column] for column in np.flatnonzero(row)} for row in table.labels]
    assert found == [*(set(kinds) for _, kinds in ICH_SLICES.values()), set()]
    assert "6 rows of stage_2_train.csv are repeated" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("ID,Label", "Id,Label", "does not begin with ID,Label"),
        ("ID_000012eaf_any,0", "ID_000012eaf_some,0", "'ID_000012eaf_some,0' in line 7"),
        ("ID_000012eaf_any,0", "ID_000012eaf_any,2", "'ID_000012eaf_any,2' in line 7"),
        ("ID_000012eaf_any,0\n", "", "says nothing for ID_000012eaf, any"),
        (
            "ID_000012eaf_any,0",
            "ID_000012eaf_subdural,1\nID_000012eaf_any,0",
            "says both 0 and 1 for ID_000012eaf, subdural",
        ),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, old: str, new: str, found: str) -> None:
    path = write_ich_table(tmp_path) / "stage_2_train.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=rf"stage_2_train\.csv .*{found}"):
        read_rows(RsnaIch.origin, path)


def test_hounsfield_units_become_three_channels(tmp_path: Path) -> None:
    units = np.array([[0, 80], [20, 4000]])
    path = write_slice(tmp_path / "x.dcm", (units + 1024).astype(np.int16))
    assert read_hounsfield(path).tolist() == units.tolist()
    brain, subdural, bone = decode_slice(path, WINDOWS, 2)
    # Brain shows 0 to 80, subdural -20 to 180, bone -800 to 2000.
    assert brain.tolist() == [[0, 255], [64, 255]]  # 20 / 80 of 255 is 63.75
    assert subdural.tolist() == [[26, 128], [51, 255]]  # 20, 100 and 40 of 200
    assert bone.tolist() == [[73, 80], [75, 255]]  # 800, 880 and 820 of 2800


def test_wrapped_values_are_corrected(tmp_path: Path) -> None:
    """Twelve bits without a sign: 4095 stands for -1, and 3096 for -1000."""
    stored = np.array([[0, 40], [4095, 3096]], dtype=np.uint16)
    path = write_slice(tmp_path / "x.dcm", stored, BitsStored=12, HighBit=11, RescaleIntercept=0)
    assert read_hounsfield(path).tolist() == [[0, 40], [-1, -1000]]
    # With the usual intercept nothing is wrapped.
    path = write_slice(
        tmp_path / "y.dcm", stored, BitsStored=12, HighBit=11, RescaleIntercept=-1024
    )
    assert read_hounsfield(path).tolist() == [[-1024, -984], [3071, 2072]]


def test_dicom_slices_are_split_by_patient(tmp_path: Path) -> None:
    splits = make(write_rsna_ich(tmp_path / "rsna")).load(tmp_path / "cache")
    assert {*splits.train.ids, *splits.test.ids} == set(ICH_SLICES)  # not the damaged one
    train, test = set(splits.train.groups or ()), set(splits.test.groups or ())
    assert not train & test
    for split in (splits.train, splits.test):
        assert split.known.all()
        assert split.groups == tuple(ICH_SLICES[name][0] for name in split.ids)
        units = [10 * list(ICH_SLICES).index(name) for name in split.ids]
        assert split.images.shape[1:] == (3, 4, 4)
        brain = [round(min(unit / 80, 1) * 255) for unit in units]
        assert split.images[:, 0, 1, 1].tolist() == pytest.approx(brain, abs=1)
        labels = [[int(kind in ICH_SLICES[name][1]) for kind in SUBTYPES] for name in split.ids]
        assert split.labels.tolist() == labels


def test_converted_images(tmp_path: Path) -> None:
    root = write_ich_table(tmp_path / "rsna")
    write_images(root / "png", [f"{name}.png" for name in ICH_SLICES])
    with pytest.raises(UserError, match=r'do not name their patients.*split = "image"'):
        make(root, images="png").load(tmp_path / "cache")
    splits = make(root, images="png", split="image").load(tmp_path / "cache")
    assert (len(splits.train), len(splits.test)) == (3, 3)
    assert splits.train.groups is None
    for name, pixels in zip(splits.train.ids, splits.train.images):
        assert (pixels == 10 * list(ICH_SLICES).index(name)).all()


def test_patients_of_converted_images_from_a_table(tmp_path: Path) -> None:
    root = write_ich_table(tmp_path / "rsna")
    write_images(root / "png", [f"{name}.png" for name in ICH_SLICES])
    rows = [f"{name},{patient}" for name, (patient, _) in ICH_SLICES.items()]
    (root / "who.csv").write_text("\n".join(["ID,PatientID", *rows]))
    splits = make(root, images="png", patients="who.csv").load(tmp_path / "cache")
    assert splits.train.groups == tuple(ICH_SLICES[name][0] for name in splits.train.ids)
    assert not set(splits.train.groups) & set(splits.test.groups or ())
    (root / "who.csv").write_text("\n".join(["ID,PatientID", *rows[:-1]]))
    with pytest.raises(UserError, match="lacks 1 slice, such as ID_0000aee4b"):
        make(root, images="png", patients="who.csv").load(tmp_path / "cache")


def test_missing_slices_are_named_or_left_out(tmp_path: Path) -> None:
    root = write_rsna_ich(tmp_path / "rsna")
    (root / "stage_2_train" / "ID_00008ce3c.dcm").unlink()
    with pytest.raises(UserError, match=r"no image ID_00008ce3c.*Kaggle.*1 of 6 images"):
        make(root).load(tmp_path / "cache")
    splits = make(root, missing_images="leave-out").load(tmp_path / "cache")
    assert {*splits.train.ids, *splits.test.ids} == set(ICH_SLICES) - {"ID_00008ce3c"}
    with pytest.raises(UserError, match="holds no png"):
        make(root, images="png").load(tmp_path / "cache")
    (root / "png").mkdir()
    with pytest.raises(UserError, match=r"no image ID_000012eaf.*7 of 7 images"):
        make(root, images="png", missing_images="leave-out").load(tmp_path / "cache")
    (root / "stage_2_train.csv").unlink()
    with pytest.raises(UserError, match=r"holds no stage_2_train\.csv"):
        make(root).load(tmp_path / "cache")


def test_number_of_healthy_slices(tmp_path: Path) -> None:
    table = read_rows(RsnaIch.origin, write_ich_table(tmp_path) / "stage_2_train.csv")
    bleeding = {name for name, (_, kinds) in ICH_SLICES.items() if kinds}
    kept = keep_healthy(table, 1, seed=0)
    assert len(kept) == 4
    assert bleeding <= set(kept.ids)
    assert kept.ids == tuple(name for name in table.ids if name in kept.ids)
    assert len(keep_healthy(table, 99, seed=0)) == 7
    drawn = {keep_healthy(table, 1, seed).ids for seed in range(40)}
    assert len(drawn) == 4  # each of the four healthy slices is drawn by some seed
    root = write_rsna_ich(tmp_path / "rsna")
    splits = make(root, healthy=0).load(tmp_path / "cache")
    assert {*splits.train.ids, *splits.test.ids} == bleeding


def test_damaged_slices_are_reported_together(tmp_path: Path) -> None:
    root = write_rsna_ich(tmp_path / "rsna")
    values = np.zeros((8, 8, 3), np.int16)
    folder = root / "stage_2_train"
    for name in ("ID_000012eaf", "ID_0000aee4b"):
        (folder / f"{name}.dcm").write_bytes((folder / f"{name}.dcm").read_bytes()[:-40])
    with pytest.raises(UserError, match="RSNA ICH: image files that cannot be used: 2") as caught:
        make(root).load(tmp_path / "cache")
    assert f"{folder / 'ID_000012eaf.dcm'}: damaged" in str(caught.value)
    assert f"{folder / 'ID_0000aee4b.dcm'}: damaged" in str(caught.value)
    assert not list((tmp_path / "cache").glob("images-*.u8"))
    for name in ("ID_000012eaf", "ID_0000aee4b"):
        (folder / f"{name}.dcm").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"be used: 2.*\n.*eaf\.dcm: does not name its patient"):
        make(root).load(tmp_path / "cache")
    path = write_slice(
        tmp_path / "x.dcm",
        values[:, :, 0],
        NumberOfFrames=2,
        PixelData=np.zeros((2, 8, 8), np.int16).tobytes(),
    )
    with pytest.raises(BadImage, match="not a single grey slice"):
        decode_slice(path, WINDOWS, 4)


def test_an_interrupted_decode_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RSNA's 460 GB take hours: what was decoded before an interruption is kept."""
    source, decoded = make(write_rsna_ich(tmp_path / "rsna"), split="image"), []

    def interrupted(path: Path, windows: Windows, size: int) -> np.ndarray:
        if len(decoded) == 4:
            raise KeyboardInterrupt
        decoded.append(path)
        return decode_slice(path, windows, size)

    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # one thread: four rows are there, no more
    monkeypatch.setattr(slices, "decode_slice", interrupted)
    with pytest.raises(KeyboardInterrupt):
        source.load(tmp_path / "cache")
    (partial,) = (tmp_path / "cache").glob("*.part")
    kept = partial.stat().st_size // (3 * 4 * 4)
    decoded.clear()
    assert 0 < kept <= 4
    monkeypatch.setattr(
        slices, "decode_slice", lambda *args: decoded.append(args) or decode_slice(*args)
    )
    assert len(source.load(tmp_path / "cache").train) == 3
    assert len(decoded) == len(ICH_SLICES) - kept


def test_a_missing_dicom_reader_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_rsna_ich(tmp_path / "rsna")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    for split in ("patient", "image"):
        with pytest.raises(UserError, match=r"pip install 'fedquilt\[dicom\]'"):
            make(root, split=split).load(tmp_path / "cache")


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"stage": 3}, "stage is 3; expected 1 or 2"),
        ({"missing_images": "leave_out"}, "did you mean 'leave-out'"),
        ({"split": "images"}, "did you mean 'image'"),
        ({"test_share": 2.0}, "test_share is 2.0"),
        ({"size": 0}, "size is 0"),
        ({"healthy": -1}, "healthy is -1"),
        ({"windows": ((1.0, 2.0), (1.0, 0.0), (1.0, 2.0))}, "a width above 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        make(Path("x"), **settings)
