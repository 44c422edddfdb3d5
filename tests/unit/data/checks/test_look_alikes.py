"""Names that differ only in form, copies of images, covariates, sites with one kind of label."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image
from support.folder_files import make_folder, noise, write_csv
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.data.checks.folder import CheckResult, check
from fedquilt.data.sources.folder.load import Folder
from fedquilt.reports.annotation_picture import draw_annotation_map

USUAL = {"size": 4, "patient_column": "patient", "site_column": "site"}
HEADER = "image,patient,site,A,B"


def rows(count: int = 60, header: str = HEADER) -> list[str]:
    """Two sites, two images a patient, both labels everywhere."""
    cells = (f"{i}.png,p{i // 2},{'MN'[i % 4 // 2]},{i % 2},{i % 3 % 2}" for i in range(count))
    return [header, *cells]


def checked(root: Path, lines: list[str], **settings: object) -> CheckResult:
    images, labels = make_folder(root, "\n".join(lines) + "\n")
    return check(Folder(folder=str(images), labels=str(labels), **(USUAL | settings)))  # type: ignore[arg-type]


def warnings_about(word: str, result: CheckResult) -> list[str]:
    return [each for each in result.warnings if word in each]


def test_usual_names_give_no_warning(tmp_path: Path):
    assert checked(tmp_path, rows()).warnings == ()


@pytest.mark.parametrize(("column", "side", "count"), [(3, "1", 30), (3, "0", 30)])
def test_site_with_one_kind_of_label(tmp_path: Path, column: int, side: str, count: int):
    lines = [line.split(",") for line in rows()]
    for cells in lines[1:]:
        cells[column] = side if cells[2] == "N" else cells[column]
    result = checked(tmp_path, [",".join(cells) for cells in lines])
    (found,) = warnings_about(f"only {side}s", result)
    assert f"class 'A' has only {side}s at N ({count} images), and both at other sites" in found
    assert result.annotation_map is not None
    marked = [[result.annotation_map.is_one_sided(s, c) for c in (0, 1)] for s in (0, 1)]
    assert marked == [[False, False], [True, False]]  # sites M and N, classes A and B
    figure = draw_annotation_map(result.annotation_map)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if "▲" in text] == [f"{int(side) * 30} / 30 ▲"]
    assert "only 1s or only 0s" in figure.get_supxlabel()


def test_table_of_the_check_marks_the_site(tmp_path: Path):
    lines = [line.replace(",N,0,", ",N,1,") for line in rows()]
    images, labels = make_folder(tmp_path, "\n".join(lines))
    arguments = ["data", "check", str(images), "--labels", str(labels), "--no-picture"]
    columns = ["--site-column", "site", "--patient-column", "patient"]
    shown = " ".join(CliRunner().invoke(app, [*arguments, *columns]).stdout.split())
    assert "A 15/30 30/30 ▲ 45/60" in shown
    assert "▲ only 1s or only 0s" in shown


@pytest.mark.parametrize(
    ("forms", "count"),
    [(("1", "1.0"), 1), (("1", "001"), 1), (("Q7", "q007"), 1), (("1", "2"), 0), (("10", "1"), 0)],
)
def test_patients_in_several_forms(tmp_path: Path, forms: tuple[str, str], count: int):
    lines = rows()
    lines[3] = lines[3].replace(",p1,", f",{forms[0]},")
    lines[9] = lines[9].replace(",p4,", f",{forms[1]},")
    found = warnings_about("written in several forms", checked(tmp_path, lines))
    assert len(found) == count
    if count:
        assert "1 patient is written" in found[0]
        assert "(lines 4 and 10)" in found[0]
        assert not any(form in found[0].split("capitals")[1] for form in forms if len(form) > 2)


def test_sites_and_classes_that_differ_in_case_or_spaces(tmp_path: Path):
    lines = rows(header="image,patient,site,Heart size,heart_size")
    lines[1] = lines[1].replace(",M,", ",m,")
    result = checked(tmp_path, lines)
    assert warnings_about("the sites 'M' and 'm' differ only in case or spaces", result)
    assert warnings_about("the classes 'Heart size' and 'heart_size' differ only in case", result)


@pytest.mark.parametrize(
    ("name", "is_covariate"),
    [("female", True), ("AgeGroup", True), ("sex_male", True), ("haemorrhage", False),
     ("Drainage", False)],
)  # fmt: skip
def test_covariates_by_their_words(tmp_path: Path, name: str, is_covariate: bool):
    result = checked(tmp_path, rows(header=HEADER.replace(",A,", f",{name},")))
    assert bool(warnings_about(f"the column '{name}' looks like a fact", result)) == is_covariate


def test_copies_of_an_image(tmp_path: Path):
    """Image 0 again as 3 (another site, other labels) and 8 (same site and labels)."""
    lines = rows()
    images, labels = make_folder(tmp_path, "\n".join(lines))
    for seed, path in enumerate(sorted(images.iterdir())):
        Image.fromarray(noise((8, 8), seed)).save(path)
    shutil.copy(images / "0.png", images / "3.png")
    shutil.copy(images / "4.png", images / "28.png")
    lines[1], lines[4] = "0.png,p0,M,0,0", "3.png,p1,N,1,"
    lines[5], lines[29] = "4.png,p2,M,0,1", "28.png,p14,M,0,1"
    write_csv(labels, "\n".join(lines))
    source = Folder(folder=str(images), labels=str(labels), **USUAL)  # type: ignore[arg-type]
    result = check(source)
    (several,) = warnings_about("occur under several names", result)
    assert several.startswith("2 images occur")
    assert "lines 2 and 5; 6 and 30" in several
    (sites,) = warnings_about("at several sites", result)
    assert sites.startswith("1 image occurs")
    assert "(lines 2 and 5)" in sites
    (contradicting,) = warnings_about("contradict each other", result)
    assert contradicting.startswith("1 image occurs")
    assert warnings_about("occur under several names", check(source, open_images=False)) == []
