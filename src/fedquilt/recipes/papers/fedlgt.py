"""FedLGT (Liu et al., AAAI 2024), Tables 1 to 4, and the data they run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers.criterion import AmongBest
from fedquilt.recipes.papers.published_numbers import published
from fedquilt.recipes.papers.table import (
    FOLDER,
    Column,
    DataChoice,
    Metric,
    PublishedTable,
    Row,
    Settings,
    choose,
    method_row,
)

ROUNDS = 50  # in the paper
# The paper's C-F1 is the harmonic mean of C-P and C-R, like class_f1.
PRINTED_METRICS = {
    "map": "c-ap",
    "class_precision": "c-p",
    "class_recall": "c-r",
    "class_f1": "c-f1",
    "overall_ap": "o-ap",
    "overall_precision": "o-p",
    "overall_recall": "o-r",
    "overall_f1": "o-f1",
}
METRICS = tuple(Metric(name=ours, label=each.upper()) for ours, each in PRINTED_METRICS.items())
ABLATION_METRICS = tuple(
    each for each in METRICS if each.name in ("map", "class_f1", "overall_ap", "overall_f1")
)
TRAINING = {"optimizer": "adam", "lr": 1e-4, "batch_size": 16, "epochs": 5, "clip_norm": 10.0}
CLIP = "open-clip:ViT-B-16/openai"
AVERAGED = {"join": "average", "prompt": "The photo contains {name}"}  # as in the authors' code
LABELS = {
    "centralised": "centralised ResNet",
    "centralised-c-tran": "centralised C-Tran",
    "fedavg": "FedAvg",
    "fedc-tran": "FedC-Tran",
    "fedlgt": "FedLGT",
}
COMPONENTS = {
    "fedc-tran": "FedC-Tran",
    "ca-mle": "FedC-Tran + CA-MLE",
    "ule": "FedC-Tran + ULE",
    "fedlgt": "FedLGT",
}
REMARKS = (
    "We report the last round; the authors' script evaluates every ten rounds and not after the "
    "last.",
    "Label embeddings are CLIP's of 'The photo contains NAME', with the extra text. As the name of "
    "a coarse class of FLAIR its 20 most frequent fine classes are joined. In the row "
    "fedlgt-average (--cells) its vector is the mean over all its fine classes, then scaled to "
    "length 1; the authors' code does not scale it. On digits vectors are made from the spelling.",
    "COCO and VOC: images are split evenly over 20 clients, the default of the authors' code; the "
    "paper does not say how many.",
    "The row fedlgt-released (--cells) follows the authors' code.",
)


@dataclass(frozen=True)
class Setting:
    """Data that the tables run on."""

    name: str
    about: str
    settings: Mapping[str, Any]
    printed: str  # the paper's data set whose numbers are shown
    text: Settings = field(default_factory=lambda: {"text_encoder": CLIP})  # of FedLGT's rows
    training: Settings | None = None
    rounds: int = ROUNDS
    same_data: bool = True


def _photographs(name: str, about: str, printed: str, data: Settings) -> Setting:
    settings = {
        "data": {"folder": FOLDER, "size": 256, **data},
        "model": {"backbone": "resnet18.tv_in1k", "weights": "timm", **at_hand.IMAGENET},
        "views": {"weak": "flip"},
        "partition": {"name": "iid", "clients": 20},
    }
    return Setting(name, about, settings, printed)


def _users(name: str, about: str, printed: str, grain: str) -> Setting:
    found = _photographs(name, about, printed, {"name": "flair", "grain": grain})
    cohort = {"partition": {"name": "natural"}, "cohort_size": 50}
    return Setting(name, about, {**found.settings, **cohort}, printed)


FLAIR_COARSE = replace(
    _users("flair", "the folder of FLAIR; 17 coarse classes", "flair coarse", "coarse"),
    text={"text_encoder": CLIP, "finer_names": FOLDER},
)
FLAIR_FINE = _users("flair-fine", "the folder of FLAIR; 1,628 classes", "flair fine", "fine")
COCO = _photographs("ms-coco", "the folder of MS-COCO 2014", "ms-coco", {"name": "ms-coco"})
VOC = _photographs(
    "pascal-voc", "the folder of PASCAL VOC 2007", "pascal voc", {"name": "pascal-voc"}
)


def _digits(printed: str) -> Setting:
    settings = {
        **at_hand.digits(classes=10, canvas=24, train=2000),
        "partition": {"name": "iid", "clients": 5},
    }
    return Setting(
        "digits",
        at_hand.DIGITS_ABOUT,
        settings,
        printed,
        text={"text_encoder": "hashed-names"},
        training={"lr": 1e-3, "epochs": 2},
        rounds=30,
        same_data=False,
    )


def table1(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    title = "FedLGT, AAAI 2024, Table 1: users' photographs, 17 classes"
    return _methods("fedlgt/table1", title, (FLAIR_COARSE,), data, rounds)


def table2(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    title = "FedLGT, AAAI 2024, Table 2: users' photographs, 1,628 classes"
    return _methods("fedlgt/table2", title, (FLAIR_FINE,), data, rounds)


def table3(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    title = "FedLGT, AAAI 2024, Table 3: photographs split evenly over clients"
    choices = (COCO, VOC, _digits("ms-coco"))
    return _methods("fedlgt/table3", title, choices, data, rounds)


def table4(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    def rows(of: Setting) -> tuple[Row, ...]:
        return (
            method_row("fedc-tran", "FedC-Tran", "fedc-tran"),
            method_row("ca-mle", "+ CA-MLE", "fedlgt", text_encoder="learned"),
            method_row("ule", "+ ULE", "fedlgt", **of.text, calibrate=False),
            method_row("fedlgt", "FedLGT", "fedlgt", **of.text),
        )

    choices = {
        each.name: _choice(each, "4", COMPONENTS, ABLATION_METRICS)
        for each in (FLAIR_COARSE, _digits("flair coarse"))
    }
    chosen = choose("fedlgt/table4", choices.values(), data)
    of = FLAIR_COARSE if chosen.name == FLAIR_COARSE.name else _digits("flair coarse")
    title = "FedLGT, AAAI 2024, Table 4: what each component adds"
    return _table("fedlgt/table4", title, choices, chosen, rounds, rows(of), ABLATION_METRICS)


def _methods(
    name: str, title: str, settings: tuple[Setting, ...], data: str | None, rounds: int | None
) -> PublishedTable:
    on_users = settings[0].name.startswith("flair")
    printed = {row: LABELS[row] for row in LABELS if on_users or not row.startswith("centralised")}
    choices = {each.name: _choice(each, name[-1], printed, METRICS) for each in settings}
    chosen = choose(name, choices.values(), data)
    (of,) = (each for each in settings if each.name == chosen.name)
    bounds = (
        method_row("centralised", "centralised ResNet", "centralised", kind="bound"),
        _centralised_c_tran(),
    )
    rows = (
        *(bounds if on_users else ()),
        method_row("fedavg", "FedAvg", "fedavg"),
        method_row("fedc-tran", "FedC-Tran", "fedc-tran"),
        method_row("fedlgt", "FedLGT", "fedlgt", **of.text),
        _variant("released", "FedLGT, as released", variant="released", **of.text),
        *(
            [_variant("average", "FedLGT, averaged names", **of.text, **AVERAGED)]
            if "finer_names" in of.text
            else []
        ),
    )
    return _table(name, title, choices, chosen, rounds, rows, METRICS)


def _variant(name: str, label: str, **settings: Any) -> Row:
    return method_row(f"fedlgt-{name}", label, "fedlgt", kind="variant", **settings)


def _centralised_c_tran() -> Row:
    """FedC-Tran with a single client, which keeps its optimizer."""
    method = {"name": "fedc-tran", "training": {"keep_optimizer": True}}
    return Row(
        name="centralised-c-tran",
        label="centralised C-Tran",
        settings={
            "partition": {"name": "iid", "clients": 1},
            "cohort_size": 1,
            "method": method,
        },
        kind="bound",
    )


def _table(
    name: str,
    title: str,
    choices: Mapping[str, DataChoice],
    choice: DataChoice,
    rounds: int | None,
    rows: tuple[Row, ...],
    metrics: tuple[Metric, ...],
) -> PublishedTable:
    return PublishedTable(
        name=name,
        title=title,
        choices=choices,
        choice=choice,
        rounds=rounds or choice.rounds,
        rows=rows,
        metrics=metrics,
        criterion=AmongBest(row="fedlgt", metric="map", places=1),
        remarks=REMARKS,
    )


def _choice(
    of: Setting, table: str, printed: Mapping[str, str], metrics: tuple[Metric, ...]
) -> DataChoice:
    reference = published(
        of.printed,
        "fedlgt",
        table,
        of.printed,
        rows=printed,
        columns={"all": ""},
        metrics={each.name: PRINTED_METRICS[each.name] for each in metrics},
        same_data=of.same_data,
    )
    return DataChoice(
        name=of.name,
        about=of.about,
        settings={
            **of.settings,
            **at_hand.evaluated(of.rounds),
            "annotation": {"name": "full"},
            "method": {"training": {**TRAINING, **(of.training or {})}},
        },
        columns=(Column(name="all", label="all labels"),),
        references=(reference,),
        rounds=of.rounds,
    )
