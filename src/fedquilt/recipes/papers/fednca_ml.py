"""FedNCA-ML (Peng et al., 2025), Tables 1 to 8, and the data they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from fedquilt.recipes.papers import data_at_hand as at_hand
from fedquilt.recipes.papers.criterion import AheadOfSecond, AmongBest, Criterion
from fedquilt.recipes.papers.fednca_ml_data import (
    CHEST,
    CIFAR10,
    DERMAMNIST,
    FITTED_SETS,
    ONE_ALLOCATION,
    PASCAL_VOC,
    PLAIN,
    TRAINING,
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

AUCS = (
    Metric(name="macro_auc", label="macro AUC"),
    Metric(name="micro_auc", label="micro AUC"),
)
METRICS = (
    AUCS[0],
    Metric(name="macro_f1", label="macro F1"),
    AUCS[1],
    Metric(name="overall_f1", label="micro F1"),
)
PRINTED_METRICS = {
    "macro_auc": "macro-auc",
    "macro_f1": "macro-f1",
    "micro_auc": "micro-auc",
    "overall_f1": "micro-f1",
}
HIDDEN_LAYER = {"model": {"head": "hidden-layer"}}  # the authors' head of the baselines
LABELS = {
    "centralised": "Centralized",
    "fedavg": "FedAvg",
    "fedcurv": "FedCurv",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "spherefed": "SphereFed",
    "fedlgt": "FedLGT",
    "fednca-ml": "FedNCA-ML",
}
COMPONENTS = {
    "fc": "none (FC)",
    "etf": "ETF",
    "ladm": "ETF+LADM",
    "neg": "ETF+LADM+Neg",
    "pos": "ETF+LADM+Pos",
    "all": "ETF+LADM+Neg+Pos",
}
QUERIES = {
    "learnable-random": "query learnable, random",
    "learnable-etf": "query learnable, ETF",
    "fixed-etf": "query fixed, ETF",
}
BASELINES = ("centralised", "fedavg", "fedcurv", "fedprox", "scaffold")  # with a head of their own
REMARKS = (
    "On the paper's images we report the round that is best on validation images, an eighth or a "
    "tenth of each client's, by AUC; the paper chooses by F1, on validation data according to its "
    "text and on the test data according to its code. On other sizes and on digits we report the "
    "last round.",
    "The paper's partition generator is not public. On the paper's images a client's classes fit "
    "its Dirichlet shares, so that beta matters (choose_by = shares-first); on other sizes and on "
    "digits they are drawn apart, as in the results of docs/results.",
    "The paper's images have 224 px, so LADM attends to 7 x 7 places. With --data cifar10 canvases "
    "stay at 64 px (4 places), with cifar10-128 they have 128 px; digits have 24 px.",
    "On the paper's images the baselines have its head with a hidden layer of twice the feature "
    "width; on other sizes and on digits a linear head, as in the results of docs/results.",
    "FedLGT uses the spelling of class names unless method.text_encoder names an encoder.",
)


def table1(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _methods("fednca-ml/table1", "CIFAR-10 composites", CIFAR10, data, rounds)


def table2(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _methods("fednca-ml/table2", "DermaMNIST composites", DERMAMNIST, data, rounds)


def table3(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _methods("fednca-ml/table3", "PASCAL VOC", PASCAL_VOC, data, rounds)


def table4(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _methods("fednca-ml/table4", "ChestX-ray14", CHEST, data, rounds)


def table5(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _components("fednca-ml/table5", DERMAMNIST, data, rounds)


def table6(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _queries("fednca-ml/table6", DERMAMNIST, data, rounds)


def table7(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _components("fednca-ml/table7", CIFAR10, data, rounds)


def table8(data: str | None = None, rounds: int | None = None) -> PublishedTable:
    return _queries("fednca-ml/table8", CIFAR10, data, rounds)


_row = partial(method_row, weighting="uniform", positive_weight="none")


def _methods(
    name: str, on: str, data: tuple[Setting, ...], chosen: str | None, rounds: int | None
) -> PublishedTable:
    def rows(of: Setting) -> tuple[Row, ...]:
        fednca = partial(_row, method="fednca-ml", rejection=of.rejection)
        released = {"kind": "variant", "variant": "released"}
        return (
            _row("centralised", "centralised", "centralised", kind="bound"),
            _row("fedavg", "FedAvg", "fedavg"),
            _row("fedcurv", "FedCurv", "fedcurv", strength=0.1),
            _row("fedprox", "FedProx", "fedprox", mu=0.01),
            _row("scaffold", "SCAFFOLD", "scaffold"),
            _row("spherefed", "SphereFed", "spherefed"),
            _row("fedlgt", "FedLGT", "fedlgt"),
            fednca("fednca-ml", "FedNCA-ML"),
            fednca("fednca-ml-released", "FedNCA-ML, as released", **released),
        )

    has_f1 = data is not CHEST
    return _table(
        name,
        f"FedNCA-ML, 2025, {on}: complete labels, a client sees part of the classes",
        data,
        chosen,
        rounds,
        which=0,
        rows=rows,
        printed=LABELS,
        metrics=METRICS if has_f1 else AUCS,
        criterion=AheadOfSecond(
            row="fednca-ml",
            metric="macro_auc",
            also=("macro_f1",) if has_f1 else ("micro_auc",),
        ),
    )


def _components(
    name: str, data: tuple[Setting, ...], chosen: str | None, rounds: int | None
) -> PublishedTable:
    def rows(of: Setting) -> tuple[Row, ...]:
        def component(
            row: str, label: str, neg: float = 0.0, pos: float = 0.0, head: str = "ladm"
        ) -> Row:
            return _row(row, label, "fednca-ml", head=head, rejection=neg, compaction=pos)

        return (
            component("fc", "FC", head="linear"),
            component("etf", "ETF only", head="etf"),
            component("ladm", "+ LADM"),
            component("neg", "+ LADM + Neg", neg=of.rejection),
            component("pos", "+ LADM + Pos", pos=1.0),
            component("all", "all", neg=of.rejection, pos=1.0),
        )

    return _table(
        name,
        "FedNCA-ML, 2025, ablation: what each component adds",
        data,
        chosen,
        rounds,
        which=1,
        rows=rows,
        printed=COMPONENTS,
        metrics=METRICS,
        criterion=AheadOfSecond(row="all", metric="macro_auc", also=("macro_f1",)),
    )


def _queries(
    name: str, data: tuple[Setting, ...], chosen: str | None, rounds: int | None
) -> PublishedTable:
    # As in the row + LADM of the ablation, whose number the paper prints for the fixed query.
    plain = {"rejection": 0.0, "compaction": 0.0}
    random = {"query": "random", "train_query": True}
    rows = (
        _row("learnable-random", "learnable, random", "fednca-ml", **plain, **random),
        _row("learnable-etf", "learnable, ETF", "fednca-ml", **plain, train_query=True),
        _row("fixed-etf", "fixed, ETF", "fednca-ml", **plain),
    )
    return _table(
        name,
        "FedNCA-ML, 2025, how the attention's queries start and whether they are trained",
        data,
        chosen,
        rounds,
        which=2,
        rows=lambda of: rows,
        printed=QUERIES,
        metrics=METRICS,
        criterion=AmongBest(row="fixed-etf", metric="macro_f1", places=2),
    )


def _table(
    name: str,
    title: str,
    data: tuple[Setting, ...],
    chosen: str | None,
    rounds: int | None,
    *,
    which: int,
    rows: Callable[[Setting], tuple[Row, ...]],
    printed: Mapping[str, str],
    metrics: tuple[Metric, ...],
    criterion: Criterion,
) -> PublishedTable:
    choices = {each.name: _choice(each, which, printed, metrics) for each in data}
    choice = choose(name, choices.values(), chosen)
    of = next(each for each in data if each.name == choice.name)
    return PublishedTable(
        name=name,
        title=title,
        choices=choices,
        choice=choice,
        rounds=rounds or choice.rounds,
        rows=tuple(_with_papers_head(row) if of.is_papers else row for row in rows(of)),
        metrics=metrics,
        criterion=criterion,
        remarks=REMARKS,
    )


def _with_papers_head(row: Row) -> Row:
    return replace(row, settings={**row.settings, **HIDDEN_LAYER}) if row.name in BASELINES else row


def _choice(
    data: Setting, which: int, printed: Mapping[str, str], metrics: tuple[Metric, ...]
) -> DataChoice:
    betas = data.betas if which == 0 else (data.ablation_beta,)
    columns = {f"beta-{beta}": f"beta {beta}, gamma {data.presence}" for beta in betas}
    reference = published(
        data.printed,
        "fednca-ml",
        data.tables[which],
        data.printed,
        rows=printed,
        columns=columns,
        metrics={each.name: PRINTED_METRICS[each.name] for each in metrics},
        same_data=data.same_data,
    )
    return DataChoice(
        name=data.name,
        about=data.about,
        settings={
            **data.settings,
            **PLAIN,
            **(
                at_hand.validated(data.validation, strict=True)
                if data.is_papers
                else at_hand.evaluated(data.rounds, strict=True)
            ),
            **(ONE_ALLOCATION if data.is_papers else {}),
            "annotation": {"name": "full"},
            "method": {"training": {**TRAINING, **(data.training or {})}},
        },
        columns=tuple(_column(beta, data) for beta in betas),
        references=(reference,),
        rounds=data.rounds,
    )


def _column(beta: float, data: Setting) -> Column:
    partition = {
        "name": "dirichlet-presence",
        "clients": 10,
        "concentration": beta,
        "presence_share": data.presence,
        **(FITTED_SETS if data.is_papers else {}),
    }
    return Column(name=f"beta-{beta}", label=f"beta {beta}", settings={"partition": partition})
