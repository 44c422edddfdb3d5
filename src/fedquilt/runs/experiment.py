"""run(): a recipe from data to result, in a folder from which it can be resumed at any moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.data.source import Splits
from fedquilt.engines.build import build_engine, check_engine
from fedquilt.engines.options import EngineName, EngineOptions
from fedquilt.metrics import nan_to_none
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.disclosure_floor import DisclosureFloor
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import (
    NO_SITES,
    Assessment,
    SiteSamples,
    assess,
    models_of,
    samples_by_site,
)
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.environment import environment
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.simulation import Simulation, simulate
from fedquilt.runs.trained_models import save_models
from fedquilt.training.method import State
from fedquilt.training.rounds import Round, run_rounds, start_server

CACHE = Path(".cache") / "fedquilt"

Observer = Callable[[str, dict[str, Any]], None]  # ("begin" | "notice" | "round" | "end", facts)


def run(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    cache: Path = CACHE,
    device: str = "cpu",
    engine: EngineName | EngineOptions = "auto",
    observe: Observer = lambda event, facts: None,
    splits: Splits | None = None,
) -> RunFolder:
    """Run a recipe, or go on with it, and return the folder that holds all it left.

    Args:
        out: the run's folder; it must be new unless ``resume``.
        engine: a name, or an ``EngineOptions`` to say more.
        observe: is told of the beginning, of notices, of every round and of the end.
        splits: the data, if it is loaded already.
    """
    options = engine if isinstance(engine, EngineOptions) else EngineOptions(engine)
    check_engine(options, device, recipe.method.training.precision)
    folder = RunFolder(out)
    with folder.begin(recipe, resume=resume):
        simulation = simulate(recipe, cache, splits)
        folder.keep(recipe, simulation.allocation)
        run_ = _Run(recipe, folder, simulation, device, options, observe)
        run_.restore()
        try:
            run_.train()
        except KeyboardInterrupt:
            run_.checkpoints.save()
            raise
        run_.finish()
    return folder


class _Run:
    """The parts of one run, so that its three stages can share them."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        simulation: Simulation,
        device: str,
        engine: EngineOptions,
        observe: Observer,
    ) -> None:
        self.recipe, self.folder, self.simulation = recipe, folder, simulation
        self.device, self.observe = device, observe
        self.checkpoints = Checkpoints(folder.checkpoints)
        self.audit = PseudoLabelAudit(simulation.splits.train, simulation.clients)
        self.engine = build_engine(
            engine,
            simulation.task,
            simulation.clients,
            states=self.checkpoints,
            audit=self.audit,
            device=device,
            transforms=(DisclosureFloor(recipe.min_cell),),
        )
        self.server: State = {}
        self.first_round = 0

    def restore(self) -> None:
        """Take up the newest whole checkpoint, or start."""
        method, task = self.recipe.method, self.simulation.task
        saved, complaints = self.checkpoints.restore()
        for complaint in complaints:
            self.observe("notice", {"text": complaint})
        if saved is None:
            self.server = start_server(method, task, self.engine)
        else:
            self.server, self.first_round = saved.server, saved.round_count
            self.engine.recall_pseudo_labels(method)
        self.folder.history.cut_to(self.first_round)
        self.observe(
            "begin",
            {
                "folder": str(self.folder.path),
                "first_round": self.first_round,
                "rounds": task.round_count,
                "clients": len(task.clients),
                "classes": len(task.classes),
            },
        )

    def train(self) -> None:
        recipe, task = self.recipe, self.simulation.task
        for round_ in run_rounds(
            recipe.method,
            task,
            self.engine,
            self.server,
            first_round=self.first_round,
            cohort_size=recipe.cohort_size,
        ):
            self.server = round_.server
            is_last = round_.index + 1 == task.round_count
            due = (round_.index + 1) % recipe.evaluation.every == 0 or is_last
            record = self._record(round_, self._assess() if due else None)
            self.folder.history.append(record)
            is_saved = (round_.index + 1) % recipe.checkpoint_every == 0 or is_last
            if is_saved or not self.engine.caches_states:
                # Not before: a saved round without its record would leave a gap in the history.
                self.engine.write_states()
                self.checkpoints.advance(round_.index + 1, round_.server)
            if is_saved:
                self.folder.history.make_durable()
                self.checkpoints.save()
            self.observe("round", record)

    def finish(self) -> None:
        """Write the result and the model; running it twice changes nothing."""
        method, task = self.recipe.method, self.simulation.task
        clients = [holding.name for holding in self.simulation.allocation.holdings]
        sites = samples_by_site(self.simulation.splits.test, self.recipe.partition, clients)
        assessment = self._assess(sites)
        models = models_of(method, self.server, self.engine)
        save_models(self.folder, self.recipe, task, models)
        history = self.folder.history.read()
        result = {
            "method": self.recipe.to_dict()["method"]["name"],
            "seed": self.recipe.seed,
            "rounds": task.round_count,
            "recipe_hash": self.recipe.hash,
            "partition_hash": self.simulation.allocation.hash,
            "metrics": assessment.averages,
            "spread_over_clients": assessment.spread,
            "reports": {name: report.to_dict() for name, report in assessment.reports.items()},
            "annotation_status": nan_to_none(assessment.annotation_status),
            **({} if assessment.by_site is None else {"by_site": assessment.by_site.to_dict()}),
            "pseudo_labels": self.audit.summary(),
            "bytes_up": sum(record["bytes_up"] for record in history),
            "bytes_down": sum(record["bytes_down"] for record in history),
            "seconds": sum(record["seconds"] for record in history),
            "environment": environment(self.device),
        }
        write_json(self.folder.result, result)
        self.observe("end", result)

    def _assess(self, sites: SiteSamples = NO_SITES) -> Assessment:
        return assess(
            self.recipe.method,
            self.server,
            self.engine,
            self.simulation.task,
            self.simulation.splits.test,
            self.recipe.evaluation,
            self.simulation.allocation,
            sites,
        )

    def _record(self, round_: Round, assessment: Assessment | None) -> dict[str, Any]:
        record: dict[str, Any] = {
            "round": round_.index + 1,
            "loss": round_.loss,
            "cohort": list(round_.cohort),
            "bytes_down": round_.bytes_down,
            "bytes_up": round_.bytes_up,
            "seconds": round_.seconds,
            "metrics": None,
        }
        if assessment is not None:
            record["metrics"] = assessment.averages
            record["per_class_auc"] = assessment.per_class("auc")
        pseudo_labels = self.audit.summary()
        return record | ({"pseudo_labels": pseudo_labels} if pseudo_labels else {})
