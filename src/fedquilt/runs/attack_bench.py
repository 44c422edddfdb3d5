"""attack_bench(): a recipe with lying clients, without and with a robust rule, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.robust import RobustRule
from fedquilt.data.source import Splits
from fedquilt.metrics.ranking import roc_auc
from fedquilt.privacy.attacks import Attack, Attackers, Backdoor, find_attack, triggered
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.audit_tables import write_audit_table
from fedquilt.runs.experiment import CACHE, run
from fedquilt.runs.finished_run import Run, read_run
from fedquilt.runs.simulation import simulate

BENCH_FILE = "attack.json"
NOBODY = "none"  # in place of an attack's name
COLUMNS = ("attack", "rule", "mean AUC", "worst class", "its AUC", "backdoor", "refused", "dropped")
WORDS = (
    "The lying clients know the honest updates. Backdoor: AUC with which the trigger alone raises "
    "the target class in images without it, 0.5 is no effect. Refused: updates that the bounds "
    "kept out. Dropped: rounds in which the rule left a liar, and an honest client, out of the "
    "body."
)


@dataclass(frozen=True)
class Cell:
    """One run: the attack, the robust rule and the quality of the model."""

    attack: str
    rule: str
    malicious: tuple[str, ...]
    mean_auc: float | None = None
    worst_class: str | None = None
    worst_auc: float | None = None
    backdoor_auc: float | None = None
    refused: int = 0  # updates of liars, over all rounds
    refused_honest: int = 0
    dropped: int = 0  # times that the rule left a liar out of the body
    dropped_honest: int = 0
    error: str | None = None  # why the run ended early

    def row(self) -> tuple[str, ...]:
        def number(value: float | None) -> str:
            return "-" if value is None else f"{value:.3f}"

        if self.error is not None:
            return (self.attack, self.rule, self.error, *("-",) * 5)
        return (
            self.attack,
            self.rule,
            number(self.mean_auc),
            self.worst_class or "-",
            number(self.worst_auc),
            number(self.backdoor_auc),
            f"{self.refused} + {self.refused_honest}",
            f"{self.dropped} + {self.dropped_honest}",
        )


def attack_bench(  # noqa: PLR0913 (options by name)
    recipe: Recipe,
    out: Path,
    *,
    attack: Attack | str,
    malicious: int = 1,
    rules: Sequence[RobustRule] = (),
    cache: Path = CACHE,
    splits: Splits | None = None,
    device: str = "cpu",
    clean: bool = True,
) -> list[Cell]:
    """Train with honest and with lying clients, under the recipe's own rule and under ``rules``.

    Each run has its folder in ``out``, named after attack and rule; ``attack.json`` holds the
    table.

    Args:
        recipe: what to train.
        out: a new folder.
        attack: a name of ``ATTACKS``, or an attack of one's own.
        malicious: how many clients lie: the first ones by name.
        rules: robust rules to compare with the recipe's own setting.
        cache: the folder for decoded images.
        splits: the data, if it is already loaded.
        device: where clients train.
        clean: also train without an attack.
    """
    chosen = find_attack(attack) if isinstance(attack, str) else attack
    if (out / BENCH_FILE).exists():
        raise UserError(f"{out} already holds an attack bench; give another --out")
    splits = recipe.data.load(cache) if splits is None else splits
    attackers = Attackers.first(chosen, malicious, simulate(recipe, cache, splits).clients)
    settings = {recipe.robust.rule: recipe}
    for rule in rules:
        settings[rule] = replace(recipe, robust=replace(recipe.robust, rule=rule))
    cells = []
    folders = []
    for lying in ([None] if clean else []) + [attackers]:
        for rule, each in settings.items():
            name = NOBODY if lying is None else chosen.name
            folder = out / f"{name}-{rule}"
            cells.append(_cell(each, folder, attackers, lying, cache, splits, device))
            folders.append(folder)
    write_json(out / BENCH_FILE, {"malicious": attackers.names, "cells": [*map(asdict, cells)]})
    title = f"Attack {chosen.name!r} by {', '.join(attackers.names)}"
    for folder, cell in zip(folders, cells):
        if cell.error is None:
            rows = [each.row() for each in cells]
            write_audit_table(folder, "attack", title, WORDS, COLUMNS, rows)
    return cells


def _cell(
    recipe: Recipe,
    folder: Path,
    attackers: Attackers,
    lying: Attackers | None,
    cache: Path,
    splits: Splits,
    device: str,
) -> Cell:
    name = NOBODY if lying is None else attackers.attack.name
    cell = Cell(name, recipe.robust.rule, attackers.names if lying is not None else ())
    try:
        run(recipe, folder, cache=cache, splits=splits, device=device, attackers=lying)
    except UserError as error:
        return replace(cell, error=str(error))
    finished = read_run(folder)
    aucs = _class_aucs(finished)
    worst = min(aucs, key=lambda each: aucs[each]) if aucs else None
    refused, dropped = _shut_out(finished, attackers.names)
    return replace(
        cell,
        mean_auc=sum(aucs.values()) / len(aucs) if aucs else None,
        worst_class=worst,
        worst_auc=None if worst is None else aucs[worst],
        backdoor_auc=_backdoor_auc(finished, attackers, cache, splits),
        refused=refused[0],
        refused_honest=refused[1],
        dropped=dropped[0],
        dropped_honest=dropped[1],
    )


def _class_aucs(finished: Run) -> dict[str, float]:
    """The AUC of each class on the test images: of the global model, or the clients' mean."""
    found: dict[str, list[float]] = {}
    for report in finished.result["reports"].values():
        for name, values in zip(report["classes"], report["per_class"]["auc"]):
            if values is not None:
                found.setdefault(name, []).append(values)
    return {name: sum(values) / len(values) for name, values in found.items()}


def _shut_out(finished: Run, liars: Sequence[str]) -> tuple[tuple[int, int], tuple[int, int]]:
    """How often bounds refused, and a rule dropped, (liars, honest clients) from the body."""
    refused, dropped = [0, 0], [0, 0]
    for record in finished.history:
        for client in record.get("refused", {}):
            refused[client not in liars] += 1
        for client, parts in record.get("dropped", {}).items():
            dropped[client not in liars] += "body" in parts
    return (refused[0], refused[1]), (dropped[0], dropped[1])


def _backdoor_auc(finished: Run, attackers: Attackers, cache: Path, splits: Splits) -> float | None:
    """How well the target's logit tells triggered from clean images that lack the target."""
    if not isinstance(attackers.attack, Backdoor) or finished.models.clients:
        return None
    clients = simulate(finished.recipe, cache, splits).clients
    target = attackers.attack.target_of(clients[attackers.names[0]])
    test = splits.test
    lacking = (test.known[:, target] & (test.labels[:, target] == 0)).nonzero().flatten()
    images = test.images[lacking]
    clean = finished.models.logits(images, None)[:, target]
    stamped = finished.models.logits(triggered(images), None)[:, target]
    scores = torch.cat([clean, stamped])[:, None].double()
    labels = torch.cat([torch.zeros(len(clean)), torch.ones(len(stamped))])[:, None]
    auc = roc_auc(scores, labels.to(torch.uint8), torch.ones_like(labels, dtype=torch.bool))
    return float(auc[0])
