"""NIH ChestX-ray14 from its published files."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import numpy as np
import pytest
from support.published_folders import CHEST_ROWS, write_chestxray14

from fedquilt.core.errors import UserError
from fedquilt.data.sources.chestxray14.labels import FINDINGS
from fedquilt.data.sources.chestxray14.load import ChestXray14


def make(root: Path, **settings: object) -> ChestXray14:
    usual = {"folder": str(root), "size": 4, "channels": 1}
    return ChestXray14(**(usual | settings))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_chestxray14(tmp_path / "nih")


def test_findings_become_labels(root: Path) -> None:
    table = make(root).labels()
    found = ["|".join(name for name, label in zip(FINDINGS, row) if label) for row in table.labels]
    # NIH sorts the findings of an image by name, the classes are in the order of the paper.
    assert found == [
        "Cardiomegaly",
        "Cardiomegaly|Emphysema",
        "",
        "Effusion|Infiltration|Mass",
        "Effusion|Pleural_Thickening",
        "Hernia",
    ]
    assert table.groups == ("1", "1", "2", "3", "3", "4")


def test_official_lists_split(root: Path, tmp_path: Path) -> None:
    splits = make(root).load(tmp_path / "cache")
    assert splits.test.ids == ("00000003_000.png", "00000003_001.png")
    assert splits.train.ids == tuple(row[0] for row in CHEST_ROWS if row[2] != 3)
    assert splits.train.known.all()
    for split in (splits.train, splits.test):
        greys = [10 * [row[0] for row in CHEST_ROWS].index(name) for name in split.ids]
        assert split.images[:, 0, 0, 0].tolist() == greys
        assert split.images.shape[1:] == (1, 4, 4)


def test_view_and_most_frequent_classes(root: Path) -> None:
    table = make(root, view="PA", classes="top8").labels()
    assert "00000001_001.png" not in table.ids
    # Among PA images Effusion has two positives; six others have one and stay in NIH's order,
    # and the eighth is the first of those without any.
    assert table.classes == (
        *("Effusion", "Cardiomegaly", "Infiltration", "Mass", "Pleural_Thickening", "Hernia"),
        *("Atelectasis", "Nodule"),
    )
    assert table.labels.sum(0).tolist() == [2, 1, 1, 1, 1, 1, 0, 0]


def test_drawn_split_keeps_patients_together(root: Path) -> None:
    source = make(root, split="patient", test_share=0.5)
    table = source.labels()
    splits = source.split_indices(table)
    assert table.groups is not None
    train, test = ({table.groups[row] for row in rows} for rows in (splits.train, splits.test))
    assert train
    assert test
    assert not train & test
    assert len(splits.train) + len(splits.test) == 6


def test_split_by_image_warns_of_shared_patients(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="fedquilt")
    source = make(root, split="image", test_share=0.5, split_seed=1)
    splits = source.split_indices(source.labels())
    assert sorted([*splits.train, *splits.test]) == list(range(6))
    # RandomState(1).permutation(6) is 2 1 4 0 3 5: the first three are the test split.
    assert splits.test.tolist() == [1, 2, 4]
    assert "2 patients or lesions are in both splits" in caplog.text  # 1 and 3


@pytest.mark.parametrize(("view", "is_told"), [("any", True), ("PA", False)])
def test_a_truncated_table_is_reported(
    root: Path, caplog: pytest.LogCaptureFixture, view: str, is_told: bool
) -> None:
    source = make(root, view=view)
    source.split_indices(source.labels())
    assert "is it whole?" not in caplog.text
    path = root / "Data_Entry_2017.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))
    source.split_indices(source.labels())  # of a single view the lists name more images anyway
    assert ("lacks 1 image of the two lists" in caplog.text) is is_told


def test_validation_images_are_left_out(root: Path) -> None:
    source = make(root, validation_share=0.25)
    splits = source.split_indices(source.labels())
    assert len(splits.train) == 3  # a quarter of four training images is one
    assert len(splits.test) == 2


def test_missing_files_are_named_with_their_origin(root: Path, tmp_path: Path) -> None:
    (root / "images_012" / "images" / "00000004_000.png").unlink()
    with pytest.raises(UserError, match="no image 00000004_000") as caught:
        make(root).load(tmp_path / "cache")
    assert "1 of 6 images" in str(caught.value)
    assert "ChestXray-NIHCC" in str(caught.value)
    assert not (tmp_path / "cache").exists()
    (root / "test_list.txt").unlink()
    with pytest.raises(UserError, match=r"holds no test_list\.txt"):
        make(root).load(tmp_path / "cache")
    (root / "Data_Entry_2017.csv").unlink()
    with pytest.raises(UserError, match=r"no Data_Entry_2017_v2020\.csv or Data_Entry_2017\.csv"):
        make(root).load(tmp_path / "cache")
    with pytest.raises(UserError, match="there is no folder"):
        make(tmp_path / "nowhere").load(tmp_path / "cache")


def test_wrong_content_is_named(root: Path) -> None:
    path = root / "Data_Entry_2017.csv"
    text = path.read_text()
    path.write_text(text.replace("|Mass", "|Mas"))
    with pytest.raises(UserError, match="'Mas' in line 5; did you mean 'Mass'"):
        make(root).labels()
    path.write_text(text.replace("Patient ID", "Patient"))
    with pytest.raises(UserError, match="no column 'Patient ID'"):
        make(root).labels()
    path.write_text(text + "00000005_000.png,Hernia,0\n")
    with pytest.raises(UserError, match="3 cells in line 8"):
        make(root).labels()
    path.write_text(text.splitlines()[0])
    with pytest.raises(UserError, match="no rows"):
        make(root).labels()
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not text"):
        make(root).labels()


def test_lists_must_cover_the_table_and_not_overlap(root: Path) -> None:
    source = make(root)
    lists = root / "test_list.txt"
    lists.write_text("00000003_000.png\n")
    with pytest.raises(UserError, match=r"lack 1 image of the table, such as 00000003_001\.png"):
        source.split_indices(source.labels())
    lists.write_text("00000001_000.png\n00000003_000.png\n00000003_001.png\n")
    with pytest.raises(UserError, match="shares 1 image with the other list"):
        source.split_indices(source.labels())


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"classes": "top9"}, "classes is 'top9'; did you mean 'top8'"),
        ({"view": "pa"}, "view is 'pa'"),
        ({"split": "offical"}, "did you mean 'official'"),
        ({"fit": "cropp"}, "did you mean 'crop'"),
        ({"test_share": 0.0}, "test_share is 0.0"),
        ({"validation_share": 1.0}, "validation_share is 1.0"),
        ({"size": 0}, "size is 0"),
        ({"channels": 2}, "channels is 2"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        make(Path("x"), **settings)


@pytest.fixture(scope="module")
def nih(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NIH's real label files, unpacked."""
    folder = tmp_path_factory.mktemp("nih")
    for packed in (shared_folder / "data" / "nih_labels").glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.mark.shared
def test_real_table_and_official_lists(nih: Path) -> None:
    source = make(nih)
    table = source.labels()
    counts = dict(zip(table.classes, table.labels.sum(0, dtype=np.int64).tolist()))
    assert len(table) == 112_120
    assert len(set(table.groups or ())) == 30_805
    assert (counts["Infiltration"], counts["Hernia"], counts["Pneumonia"]) == (19_894, 227, 1_431)
    assert int((table.labels.sum(1) == 0).sum()) == 60_361  # No Finding
    splits = source.split_indices(table)
    assert (len(splits.train), len(splits.test)) == (86_524, 25_596)
    groups = np.asarray(table.groups)
    assert not set(groups[splits.train]) & set(groups[splits.test])
    # FedLSM keeps one image of eight for validation.
    assert len(make(nih, validation_share=0.125).split_indices(table).train) == 75_708


@pytest.mark.shared
def test_real_table_as_fedmlp_uses_it(nih: Path) -> None:
    table = make(nih, view="PA", classes="top8").labels()
    assert len(table) == 67_310
    assert table.classes == (
        *("Infiltration", "Effusion", "Atelectasis", "Nodule", "Mass", "Pneumothorax"),
        *("Pleural_Thickening", "Cardiomegaly"),
    )
    by_image = make(nih, view="PA", split="image", split_seed=2023).split_indices(table)
    assert (len(by_image.train), len(by_image.test)) == (47_117, 20_193)
    by_patient = make(nih, view="PA", split="patient").split_indices(table)
    groups = np.asarray(table.groups)
    assert not set(groups[by_patient.train]) & set(groups[by_patient.test])
    assert len(by_patient.test) / len(table) == pytest.approx(0.3, abs=0.001)
    whole = table.labels.sum(0, dtype=np.int64)
    shares = table.labels[by_patient.test].sum(0, dtype=np.int64) / whole
    assert shares.tolist() == pytest.approx([0.3] * 8, abs=0.01)
