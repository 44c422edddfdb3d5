"""The label-name file: its format, how columns merge, and its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.folder_files import full_report, read, write_csv

from fedquilt.core.errors import UserError
from fedquilt.data.label_files.names import LabelNames, read_label_names

NAMES = """
[labels]
"Pleural effusion" = "Effusion"

[sites."St. Mary".labels]
"Erguss" = "Effusion"
"""


def test_format(tmp_path: Path) -> None:
    names = read_label_names(write_csv(tmp_path / "names.toml", NAMES))
    assert names.everywhere == {"Pleural effusion": "Effusion"}
    assert names.by_site == {"St. Mary": {"Erguss": "Effusion"}}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[labels\n", "not valid TOML"),
        ("[label]\n", "unknown entry 'label'; did you mean 'labels'?"),
        ('[sites."A".label]\n', "unknown entry 'label'; did you mean 'labels'?"),
        ('[sites]\nA = "x"\n', "'A' must be a table"),
        ("[labels]\nEdema = 3\n", "'Edema' must be given a class name, found 3"),
        ('[labels]\nEdema = " "\n', "'Edema' must be given a class name"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, hint: str) -> None:
    path = write_csv(tmp_path / "names.toml", text)
    with pytest.raises(UserError, match=r"names\.toml") as caught:
        read_label_names(path)
    assert hint in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_label_names(tmp_path / "none.toml")


def test_columns_merge_and_sites_translate_their_own(tmp_path: Path) -> None:
    names = LabelNames({"Pleural effusion": "Effusion"}, {"M": {"Erguss": "Effusion"}})
    text = (
        "image,site,Pleural effusion,Erguss,Edema\n"
        "a,M,,1,0\n"  # only the German column
        "b,M,0,0,1\n"  # both, agreeing
        "c,N,1,,0\n"  # only the general column
        "d,N,,,1\n"  # neither
    )
    table, problems = read(tmp_path, text, site_column="site", names=names)
    assert not problems
    assert table is not None
    assert table.classes == ("Effusion", "Edema")
    assert table.known[:, 0].tolist() == [True, True, True, False]
    assert table.labels[:3, 0].tolist() == [1, 0, 1]


def test_columns_that_disagree_are_reported_by_line(tmp_path: Path) -> None:
    names = LabelNames({"B": "A"})
    _, problems = read(tmp_path, "image,A,B\nx,1,1\ny,1,0\n", names=names)
    message = full_report(problems)
    assert "line 3: column 'B' against another of class 'A'" in message
    assert "line 2" not in message
    assert "fix one of the cells" in message


def test_a_definite_label_overrides_an_uncertain_one(tmp_path: Path) -> None:
    names = LabelNames({"B": "A"})
    text = "image,A,B\nx,-1,0\ny,1,-1\nz,-1,\n"
    table, problems = read(tmp_path, text, names=names, uncertain="positive")
    assert not problems
    assert table is not None
    assert table.labels[:, 0].tolist() == [0, 1, 1]


def test_one_column_may_mean_different_classes_at_different_sites(tmp_path: Path) -> None:
    names = LabelNames({}, {"M": {"Opacity": "Consolidation"}})
    text = "image,site,Opacity\nx,M,1\ny,N,0\n"
    table, problems = read(
        tmp_path,
        text,
        site_column="site",
        names=names,
        classes=("Opacity", "Consolidation"),
    )
    assert not problems
    assert table is not None
    assert table.known.tolist() == [[False, True], [True, False]]


def test_a_column_that_only_one_site_translates_must_be_blank_elsewhere(tmp_path: Path) -> None:
    names = LabelNames({}, {"M": {"Erguss": "Effusion"}})
    text = "image,site,Erguss\nx,M,1\ny,N,0\n"
    _, problems = read(tmp_path, text, site_column="site", names=names)
    assert "line 3, column 'Erguss', site 'N'" in full_report(problems)
    assert "translate the column for this site too" in full_report(problems)


def test_unknown_columns_classes_and_sites(tmp_path: Path) -> None:
    names = LabelNames({"Oedem": "Edem"}, {"St Mary": {}})
    text = "image,site,Oedema\nx,St. Mary,1\n"
    _, problems = read(tmp_path, text, site_column="site", names=names, classes=("Edema",))
    message = full_report(problems)
    assert "no label column 'Oedem'" in message
    assert "no class 'Edem' in the study; did you mean 'Edema'?" in message
    assert "site 'St Mary' has no image; did you mean 'St. Mary'?" in message
    assert "--label-names" in message


def test_sites_need_a_site_column(tmp_path: Path) -> None:
    names = LabelNames({}, {"M": {"A": "B"}})
    _, problems = read(tmp_path, "image,A\nx,1\n", names=names)
    assert "no site column was named (--site-column)" in full_report(problems)
