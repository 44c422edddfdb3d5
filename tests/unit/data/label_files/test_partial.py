from __future__ import annotations

from pathlib import Path

import pytest
from support.folder_files import write_csv

from fedquilt.core.errors import UserError
from fedquilt.data.label_files.csv_labels import CsvLabels, LabelColumns, read_labels
from fedquilt.data.label_files.names import LabelNames
from fedquilt.data.label_files.partial import NotJudged, judgeable_columns
from fedquilt.data.problems import Problems

CLASSES = ("edema", "hernia", "mass", "nodule")


def read(
    path: Path, text: str, names: LabelNames | None = None, **columns: object
) -> tuple[CsvLabels, NotJudged]:
    file = write_csv(path / "labels.csv", text)
    given = LabelColumns(names=names or LabelNames(), **columns)  # type: ignore[arg-type]
    narrowed, left_out = judgeable_columns(file, given, CLASSES)
    problems = Problems()
    table = read_labels(file, narrowed, problems)
    assert not problems, list(problems)
    assert table is not None
    return table, left_out


def test_some_of_the_classes_in_another_order(tmp_path: Path):
    table, left_out = read(tmp_path, "image,mass,edema\na.png,1,\nb.png,0,1\n")
    assert table.classes == ("edema", "mass")  # the model's order
    assert table.labels.tolist() == [[0, 1], [1, 0]]
    assert table.known.tolist() == [[False, True], [True, True]]
    assert left_out.classes == ("hernia", "nodule")
    assert left_out.sentences() == [
        "2 of 4 classes cannot be judged, as no image has a label for them: hernia, nodule"
    ]


def test_columns_that_the_model_does_not_know_are_named(tmp_path: Path):
    table, left_out = read(tmp_path, "image,age,mass,edma\na.png,47,1,1\nb.png,no,0,0\n")
    assert table.classes == ("mass",)
    assert left_out.columns == ("age", "edma")
    assert left_out.sentences()[1] == (
        "age, edma (did you mean 'edema'?): no class of this model, so not used; if a column is "
        "one under another name, map it with --label-names"
    )


def test_a_blank_column_cannot_be_judged(tmp_path: Path):
    table, left_out = read(tmp_path, "image,mass,edema\na.png,1,\nb.png,0,\n")
    assert table.classes == ("mass",)
    assert left_out.classes == ("edema", "hernia", "nodule")
    assert left_out.columns == ()


def test_names_are_mapped_and_those_of_other_classes_left_out(tmp_path: Path):
    names = LabelNames({"Erguss": "effusion", "Masse": "mass"})  # effusion: not of this model
    table, left_out = read(tmp_path, "image,Erguss,Masse\na.png,1,1\nb.png,0,0\n", names)
    assert table.classes == ("mass",)
    assert left_out.columns == ("Erguss",)


def test_names_of_sites(tmp_path: Path):
    names = LabelNames({}, {"north": {"M": "mass"}, "south": {"M": "nodule"}})
    text = "image,site,M\na.png,north,1\nb.png,south,0\n"
    table, left_out = read(tmp_path, text, names, site_column="site")
    assert table.classes == ("mass", "nodule")
    assert table.known.tolist() == [[True, False], [False, True]]
    assert left_out.classes == ("edema", "hernia")


def test_nothing_in_common_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"no label for any class.*columns are cough, fever"):
        read(tmp_path, "image,cough,fever\na.png,1,0\n")
    with pytest.raises(UserError, match="no label for any class"):
        read(tmp_path, "image,mass\na.png,\n")
    with pytest.raises(UserError, match="image"):
        read(tmp_path, "picture,mass\na.png,1\n")
