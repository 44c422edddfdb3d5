"""The label file: accepted content, and the message for each mistake."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.folder_files import full_report, read

from fedquilt.data.label_files.csv_labels import LabelColumns, read_labels
from fedquilt.data.problems import KEPT_PLACES, Problems

GOOD = "image,A,B\nx.png,1,0\ny.png,,1\n"


def test_blank_is_not_annotated_and_not_zero(tmp_path: Path) -> None:
    table, problems = read(tmp_path, GOOD)
    assert not problems
    assert table is not None
    assert table.classes == ("A", "B")
    assert table.ids == ("x.png", "y.png")
    assert table.lines == (2, 3)
    assert table.known.tolist() == [[True, True], [False, True]]
    assert table.labels.tolist() == [[1, 0], [0, 1]]


def test_every_documented_spelling(tmp_path: Path) -> None:
    spellings = ["1", "1.0", "yes", "TRUE", "0", "0.0", "No", "false", " 1 "]
    blanks = ["", "nan", "NaN", "NA", "n/a", "None", "NULL", "  "]
    cells = spellings + blanks
    text = "image,A\n" + "".join(f"{i}.png,{cell}\n" for i, cell in enumerate(cells))
    table, problems = read(tmp_path, text)
    assert not problems
    assert table is not None
    assert table.labels[:9, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 1]
    assert table.known[:, 0].tolist() == [True] * 9 + [False] * 8
    notices = " ".join(table.notices)
    assert "2 label cells 'nan' were read as not annotated" in notices
    assert "1 label cells 'yes' were read as 1" in notices
    assert "'1.0'" not in notices


@pytest.mark.parametrize(
    ("policy", "known", "label"),
    [("ignore", False, 0), ("positive", True, 1), ("negative", True, 0)],
)
def test_uncertain_follows_the_policy(tmp_path: Path, policy: str, known: bool, label: int) -> None:
    table, problems = read(tmp_path, "image,A\nx,1\ny,-1\nz,-1.0\n", uncertain=policy)
    assert not problems
    assert table is not None
    assert table.known[:, 0].tolist() == [True, known, known]
    assert table.labels[1:, 0].tolist() == [label, label]
    assert any("uncertain" in notice for notice in table.notices)


@pytest.mark.parametrize("value", ["2", "maybe", "1,5", "--", "-2", "０.5", "1e0"])
def test_other_values_are_refused_with_line_column_and_advice(tmp_path: Path, value: str) -> None:
    text = f'image,A,B\nx,1,0\ny,0,"{value}"\nz,0,1\n'
    _, problems = read(tmp_path, text)
    message = full_report(problems)
    assert f"line 3, column 'B': {value!r}" in message
    assert "1 (present), 0 (absent), blank (not annotated)" in message


def test_all_bad_values_of_every_column_are_reported_at_once(tmp_path: Path) -> None:
    rows = "".join(f"{i}.png,{2 if i < 50 else 1},{3 if i == 70 else 0}\n" for i in range(120))
    _, problems = read(tmp_path, "image,A,B\n" + rows)
    counts = {problem.scope: problem.count for problem in problems}
    assert counts == {"column 'A'": 50, "column 'B'": 1}
    assert "... and 45 more" in full_report(problems)  # 50 found, 5 shown
    assert max(len(problem.places) for problem in problems) == KEPT_PLACES


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    table, problems = read(tmp_path, "image,Ödem\nx.png,1\n", encoding=encoding)
    assert not problems
    assert table is not None
    assert table.classes == ("Ödem",)


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        ("image,Ödem\nx,1\n".encode("latin-1"), "line 1: byte 0xd6 is not utf-8"),
        ("image,A\nx,1\n".encode("utf-16-le"), "UTF-16 without a byte-order mark"),
        (b"PK\x03\x04rest of a workbook", "spreadsheet"),
        (b'image,A\nx,"1\n', "unexpected end of data"),
        (b'image,A\nx,"1"2\n', "line 2"),
        (b"image," + b"A" * 200_000 + b"\nx,1\n", "field larger than field limit"),
    ],
)
def test_unreadable_files_say_how_to_save_them(tmp_path: Path, raw: bytes, hint: str) -> None:
    (tmp_path / "labels.csv").write_bytes(raw)
    problems = Problems()
    assert read_labels(tmp_path / "labels.csv", LabelColumns(), problems) is None
    assert hint in full_report(problems)
    assert "CSV UTF-8" in full_report(problems)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    problems = Problems()
    assert read_labels(tmp_path / "none.csv", LabelColumns(), problems) is None
    assert read_labels(tmp_path, LabelColumns(), problems) is None
    assert "none.csv: No such file" in full_report(problems)
    assert "Is a directory" in full_report(problems)


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolon"), ("\t", "tab")])
def test_another_separator_is_read_with_a_notice(tmp_path: Path, separator: str, word: str) -> None:
    table, problems = read(tmp_path, GOOD.replace(",", separator))
    assert not problems
    assert table is not None
    assert table.labels.tolist() == [[1, 0], [0, 1]]
    assert f"separates cells by {word}" in table.notices[0]


def test_an_unclear_separator_is_a_problem(tmp_path: Path) -> None:
    table, problems = read(tmp_path, "picture;A\nx;1\n")
    assert table is None
    assert "no column 'image'; does the file use a semicolon as separator?" in full_report(problems)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        (",,\n,,\n", "no line holds a value"),
        ("image,A\n", "only a header was found"),
    ],
)
def test_empty_files(tmp_path: Path, text: str, hint: str) -> None:
    table, problems = read(tmp_path, text)
    assert table is None
    assert hint in full_report(problems)
    assert "one line per image" in full_report(problems)


def test_header_mistakes(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "image,A,A,\nx,1,1,1\n")
    assert "column 3 repeats the name 'A' of column 2" in full_report(problems)
    assert "column 4 has no name" in full_report(problems)
    _, problems = read(tmp_path, "Image,A\nx,1\n")
    assert "no column 'image'; did you mean 'Image'?" in full_report(problems)
    assert "--image-column" in full_report(problems)


def test_rows_with_too_many_or_too_few_cells(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "image,A,B\nx,1,0\ny,1\nz,1,0,1\n")
    message = full_report(problems)
    assert "line 3: 2 cells, the header has 3" in message
    assert "line 4: 4 cells, the header has 3" in message
    assert "separator" in message


def test_line_numbers_count_quoted_line_breaks_and_skip_blank_lines(tmp_path: Path) -> None:
    text = 'image,note,A\r\nx,"two\r\nlines",1\r\n\r\ny,one,2\r\n'
    _, problems = read(tmp_path, text, ignore_columns=("note",))
    assert "line 5, column 'A': '2'" in full_report(problems)


def test_duplicate_images_whatever_the_slashes(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "image,A\na/x.png,1\n./a//x.png,0\na\\x.png,1\n")
    message = full_report(problems)
    assert "line 3 repeats line 2: 'a/x.png'" in message
    assert "line 4 repeats line 2: 'a/x.png'" in message
    assert "one row per image" in message


def test_blank_image_site_and_patient_cells(tmp_path: Path) -> None:
    text = "image,site,patient,A\nx,S,p,1\n,S,p,1\ny,,p,0\nz,S,,0\n"
    _, problems = read(tmp_path, text, site_column="site", patient_column="patient")
    message = full_report(problems)
    assert "line 3, column 'image' (image): blank" in message
    assert "line 4, column 'site' (site): blank" in message
    assert "line 5, column 'patient' (patient): blank" in message


def test_named_columns_must_exist_and_differ(tmp_path: Path) -> None:
    text = "image,hospital,A\nx,S,1\n"
    _, problems = read(
        tmp_path, text, site_column="hospitals", patient_column="image", ignore_columns=("ag",)
    )
    message = full_report(problems)
    assert "no column 'hospitals' for the site; did you mean 'hospital'?" in message
    assert "column 'image' is named for image and for patient" in message
    assert "no column 'ag' to ignore" in message


def test_a_column_outside_the_class_list_is_named_with_the_nearest(tmp_path: Path) -> None:
    text = "image,Effusion,Hernia\nx,1,0\n"
    _, problems = read(tmp_path, text, classes=("Effusions", "Hernia"))
    message = full_report(problems)
    assert "column 'Effusion' is not in the class list; did you mean 'Effusions'?" in message
    assert "class 'Effusions': no image is annotated; no such column" in message
    assert "did you mean 'Effusion'?" in message


def test_class_list_sets_the_order(tmp_path: Path) -> None:
    table, problems = read(tmp_path, GOOD, classes=("B", "A"))
    assert not problems
    assert table is not None
    assert table.classes == ("B", "A")
    assert table.labels.tolist() == [[0, 1], [1, 0]]


def test_without_a_class_list_other_columns_are_named_once(tmp_path: Path) -> None:
    text = "image,age,sex,A\nx,63,F,1\ny,41,M,0\nz,1,M,0\n"
    _, problems = read(tmp_path, text)
    message = full_report(problems)
    assert "column 'age' does not hold labels: 63" in message
    assert "column 'sex' does not hold labels: F" in message
    assert "--ignore-columns" in message
    assert len(list(problems)) == 1
    table, problems = read(tmp_path, text, ignore_columns=("age", "sex"))
    assert not problems
    assert table is not None
    assert table.classes == ("A",)


def test_a_class_without_annotations_is_a_problem(tmp_path: Path) -> None:
    for cell in ("", "na", "-1"):
        _, problems = read(tmp_path, f"image,A,B\nx,1,{cell}\ny,0,{cell}\n")
        assert "class 'B': no image is annotated" in full_report(problems)
        assert "at least one 1 or 0" in full_report(problems)


def test_a_file_without_any_class(tmp_path: Path) -> None:
    table, problems = read(tmp_path, "image\nx\n")
    assert table is None
    assert "no column of the label file holds labels" in full_report(problems)


def test_image_names_stay_out_of_the_error_that_is_logged(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "image,A\nDoe_Jane.png,1\nDoe_Jane.png,0\n")
    assert "Doe_Jane" in full_report(problems)
    assert "Doe_Jane" not in str(problems.error("the data"))
    assert "line 3 repeats line 2" in str(problems.error("the data"))


def test_quoted_names_are_read_back(tmp_path: Path) -> None:
    """Names with separators, quotes and line breaks survive the csv module's quoting."""
    names = ["a,b", 'say "x"', "two\nlines", " padded "]
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["image", *names], ["x.png", "1", "0", "", "1"], ["y", 0, 1, 1, 0]]
        )
    problems = Problems()
    table = read_labels(tmp_path / "labels.csv", LabelColumns(), problems)
    assert not problems
    assert table is not None
    assert table.classes == ("a,b", 'say "x"', "two\nlines", "padded")
    assert table.known.tolist()[0] == [True, True, False, True]
