"""FedLSM (Deng et al., MICCAI 2023), Tables 1 to 3, and the data they run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers.criterion import AmongBest
from fedquilt.recipes.papers.fedlsm_data import (
    ON_CHEST,
    ON_SKIN,
    TABLE1_AT_HAND,
    TABLE2_AT_HAND,
    TRAINING,
    VALIDATION,
    Setting,
)
from fedquilt.recipes.papers.published_numbers import published
from fedquilt.recipes.papers.table import (
    Column,
    DataChoice,
    Metric,
    PublishedTable,
    Row,
    choose,
    method_row,
)

AUC = Metric(name="macro_auc", label="AUC")
TABLE2_METRICS = (
    AUC,
    Metric(name="subset_accuracy", label="accuracy"),
    Metric(name="macro_f1", label="F1"),
    Metric(name="class_precision", label="precision"),
    Metric(name="class_recall", label="recall"),
)
# As the paper prints them; ours has "Pleural_Thickening".
FINDINGS = (
    *("Consolidation", "Pneumonia", "Effusion", "Emphysema", "Edema", "Atelectasis", "Nodule"),
    *("Mass", "Thickening", "Cardiomegaly", "Fibrosis", "Hernia", "Pneumothorax", "Infiltration"),
)
PER_FINDING = tuple(
    Metric(name=f"auc {each}", label=each, of_class=each.replace("Th", "Pleural_Th"))
    for each in FINDINGS
)
CHEST_PRINTED = {"macro_auc": "macro auc"} | {each.name: each.name for each in PER_FINDING}
SKIN_PRINTED = {
    "macro_auc": "auc",
    "subset_accuracy": "accuracy",
    "macro_f1": "f1",
    "class_precision": "precision",
    "class_recall": "recall",
}
LABELS = {
    "full-labels": "FedAvg, 100 % labels",
    "fedavg": "FedAvg",
    "fedavg-star": "FedAvg*",
    "fedprox-star": "FedProx*",
    "moon-star": "MOON*",
    "fedrs": "FedRS",
    "fpsl": "FPSL",
    "fixmatch-star": "FedAvg-FixMatch*",
    "fssl-star": "FSSL*",
    "fedlsm": "FedLSM",
}
COMPONENTS = {
    "without-awpa": "FedLSM* without AWPA",
    "without-ude": "FedLSM without UDE",
    "without-ue": "FedLSM without UE",
    "fedlsm": "FedLSM",
}
# How many of its most and least uncertain images a client uses: the paper's counts on its data,
# the same share of a client's images on other data.
POOLS = {
    "chestxray14": (500, 2000),
    "cifar10": (264, 1056),
    "miml-scenes": (17, 68),
    "digits": (5, 21),
}
TABLE2_POOLS = {"ham10000": (50, 200), "cifar10": (221, 884), "digits": (4, 14)}
# w_c, the same in all rows of Tables 1 and 3
BALANCED = {
    "positive_weight": "odds",
    "positive_weight_from": "population",
    "positive_weight_cap": 100.0,
}
REMARKS = (
    "On the paper's data we report the round that is best on validation images, by AUC, as the "
    "paper does. Ours are an eighth of each client's patients, with the labels that it annotates; "
    "the paper's belong to no client. On other data we report the last round.",
    "All rows weight a class's positives by negatives / positives, counted over the annotated "
    "labels of all clients and at most 100; the authors' code also counts blanks as negatives and "
    "multiplies negatives too.",
    "Rows with a star differ from the same row without one in the averaging of head rows alone: "
    "blanks are negatives there as in FedAvg. FixMatch and FSSL need blanks as unlabelled.",
    "The baselines train on weak views (resized and flipped), FedLSM on its strong view; the paper "
    "gives a view for FedLSM only.",
    "The paper gives neither mu of FedProx and MOON, alpha of FedRS, nor FixMatch's thresholds.",
)
TABLE2_REMARK = (
    "All rows have a softmax, cross-entropy and no class weights, and predict the largest class; "
    "an image whose class its site does not identify has no label."
)

TABLE3_REMARK = (
    "Without AWPA, a head row is averaged over its annotators; without UDE nothing is mixed; "
    "without UE the mixed images are drawn at random."
)


def table1(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    name = "fedlsm/table1"
    choice = choose(name, TABLE1_CHOICES, data)
    title = "FedLSM, MICCAI 2023, Table 1: chest radiographs, sites annotate different findings"
    rows = _rows(*POOLS[choice.name])
    metrics = (AUC, *PER_FINDING) if choice.name == "chestxray14" else (AUC,)
    return _table(name, title, TABLE1_CHOICES, choice, rounds, rows, metrics, REMARKS)


def table2(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    """Softmax, cross-entropy and no class weights in all rows; the largest class is predicted."""
    name = "fedlsm/table2"
    choice = choose(name, TABLE2_CHOICES, data)
    title = "FedLSM, MICCAI 2023, Table 2: skin lesions, one class an image"
    one_class = {"one_class_per_image": True, "positive_weight": "none"}
    rows = (
        *_baselines(one_class, threshold=0.95),
        # All positives of an identified class are annotated, so almost none are unannotated.
        method_row("fedpu", "FedPU", "fedpu", variant="published", prior=[0.01]),
        *_fedlsm_rows({"variant": "single-label"}, *TABLE2_POOLS[choice.name]),
    )
    remarks = (*REMARKS, TABLE2_REMARK)
    return _table(name, title, TABLE2_CHOICES, choice, rounds, rows, TABLE2_METRICS, remarks)


def table3(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    name = "fedlsm/table3"
    choice = choose(name, TABLE3_CHOICES, data)
    title = "FedLSM, MICCAI 2023, Table 3: without one of its components"
    on_skin = choice.name == "ham10000"
    uncertain, certain = (TABLE2_POOLS if on_skin else POOLS)[choice.name]
    pools = {"uncertain_images": uncertain, "certain_images": certain}
    form = {"variant": "single-label"} if on_skin else BALANCED

    def row(name: str, **settings: Any) -> Row:
        return method_row(name, COMPONENTS[name], "fedlsm", **form, **pools, **settings)

    rows = (
        row("without-awpa", draw_counts=False),
        row("without-ude", mixing_strength=0.0),
        row("without-ue", entropy="random"),
        row("fedlsm"),
    )
    metrics = TABLE2_METRICS if on_skin else (AUC,)
    remarks = (*REMARKS, TABLE3_REMARK)
    return _table(name, title, TABLE3_CHOICES, choice, rounds, rows, metrics, remarks, places=1)


def _table(
    name: str,
    title: str,
    choices: tuple[DataChoice, ...],
    choice: DataChoice,
    rounds: int | None,
    rows: tuple[Row, ...],
    metrics: tuple[Metric, ...],
    remarks: tuple[str, ...],
    *,
    places: int = 2,
) -> PublishedTable:
    return PublishedTable(
        name=name,
        title=title,
        choices={each.name: each for each in choices},
        choice=choice,
        rounds=rounds or choice.rounds,
        rows=rows,
        metrics=metrics,
        criterion=AmongBest(row="fedlsm", metric="macro_auc", places=places),
        remarks=remarks,
    )


def _rows(uncertain: int, certain: int) -> tuple[Row, ...]:
    released = method_row(
        "fedlsm-released",
        "FedLSM, as released",
        "fedlsm",
        kind="variant",
        variant="released",
        uncertain_images=uncertain,
        certain_images=certain,
        **BALANCED,
    )
    return (
        *_baselines(BALANCED, threshold=0.85),
        *_fedlsm_rows(BALANCED, uncertain, certain),
        released,
    )


def _baselines(form: Mapping[str, Any], *, threshold: float) -> tuple[Row, ...]:
    """The rows that are not FedLSM's; those with a star average head rows over annotators."""
    star = {"head_rows": "annotated", **form}
    blank = {} if form.get("one_class_per_image") else {"unannotated": "negative"}
    sure = {"gate": "entry", "threshold": threshold}
    return (
        method_row("full-labels", "FedAvg, 100 % labels", "full-labels", kind="bound", **form),
        method_row("fedavg", "FedAvg", "fedavg", **form),
        method_row("fedavg-star", "FedAvg*", "fedavg", **star),
        method_row("fedprox-star", "FedProx*", "fedprox", mu=0.01, **blank, **star),
        method_row("moon-star", "MOON*", "moon", mu=1.0, **blank, **star),
        method_row("fedrs", "FedRS", "fedrs", alpha=0.5, **form),
        method_row("fpsl", "FPSL", "fpsl", **star),
        method_row("fixmatch-star", "FedAvg-FixMatch*", "fedfixmatch", **sure, **star),
        method_row("fssl-star", "FSSL*", "fssl", **star),
    )


def _fedlsm_rows(form: Mapping[str, Any], uncertain: int, certain: int) -> tuple[Row, ...]:
    settings = {**form, "uncertain_images": uncertain, "certain_images": certain}
    annotators = {"kind": "variant", "draw_counts": False, **settings}
    return (
        method_row("fedlsm", "FedLSM", "fedlsm", **settings),
        method_row("fedlsm-annotators", "FedLSM, annotators' head rows", "fedlsm", **annotators),
    )


def _evaluated(data: Setting, *, exclusive: bool) -> dict[str, Any]:
    settings = at_hand.validated(VALIDATION) if data.is_papers else at_hand.evaluated(data.rounds)
    return settings | {"evaluation": {**settings["evaluation"], "exclusive": exclusive}}


def _choice(data: Setting, table: str, *, on_skin: bool = False) -> DataChoice:
    """Return the data of one of the paper's tables, with the numbers it prints."""
    annotation: dict[str, Any] = {"name": "identified", "identified": data.identified}
    if data.is_papers:
        annotation |= {"published": True, "class_order": data.class_order}
    column = Column(name=f"identified-{data.identified}", label=f"{data.identified} identified")
    metrics = SKIN_PRINTED if on_skin else CHEST_PRINTED
    if table == "3" and not on_skin:
        metrics = {"macro_auc": "auc"}
    rows = COMPONENTS if table == "3" else LABELS
    reference = published(
        "ISIC 2018" if on_skin else "ChestX-ray14",
        "fedlsm",
        table,
        "isic2018" if on_skin else "chestxray14",
        rows={**rows, "fedpu": "FedPU"} if table == "2" else rows,
        columns={column.name: f"{5 if on_skin else 8} clients, 3 identified"},
        metrics=metrics,
        same_data=data.is_papers,
    )
    return DataChoice(
        name=data.name,
        about=data.about,
        settings={
            **data.settings,
            **_evaluated(data, exclusive=on_skin),
            "partition": {"name": "iid", "clients": data.clients},
            "annotation": annotation,
            "method": {"training": {**TRAINING, **data.training}},
        },
        columns=(column,),
        references=(reference,),
        rounds=data.rounds,
    )


TABLE1_CHOICES = tuple(_choice(data, "1") for data in (ON_CHEST, *TABLE1_AT_HAND))
TABLE2_CHOICES = tuple(_choice(data, "2", on_skin=True) for data in (ON_SKIN, *TABLE2_AT_HAND))
TABLE3_CHOICES = (
    _choice(ON_CHEST, "3"),
    _choice(ON_SKIN, "3", on_skin=True),
    *(_choice(data, "3") for data in TABLE1_AT_HAND),
)
