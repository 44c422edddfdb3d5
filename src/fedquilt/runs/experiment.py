"""run(): a recipe from data to result, in a folder from which it can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.processes import ONE_PROCESS, Processes, is_first, own_clients
from fedquilt.core.tree import Weights
from fedquilt.core.wording import counted
from fedquilt.data.source import Splits
from fedquilt.data.validation import KEPT_POSITIVES
from fedquilt.engines.build import build_engine, check_engine
from fedquilt.engines.options import EngineName, EngineOptions
from fedquilt.metrics.own_metrics import NO_METRICS, Metrics
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit
from fedquilt.privacy.attacks import Attackers
from fedquilt.privacy.disclosure_floor import DisclosureFloor
from fedquilt.privacy.sent_parts import check_can_be_summed
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.assessment import Assessment, assess, model_logits, models_of
from fedquilt.runs.disk_need import said, states_need
from fedquilt.runs.environment import environment
from fedquilt.runs.round_recorder import (
    Record,
    RoundMetrics,
    RoundRecorder,
    RoundValidation,
    bound_notices,
)
from fedquilt.runs.run_end import RunEnd
from fedquilt.runs.run_folder import FollowedFolder, RunFolder
from fedquilt.runs.served_models import choose_models
from fedquilt.runs.simulation import Simulation, simulate
from fedquilt.runs.validation import validate
from fedquilt.training.activity import ActivityTally, RunSize, most_in_a_round
from fedquilt.training.agreed_bounds import undefended_notice
from fedquilt.training.method import State
from fedquilt.training.rounds import start_server

CACHE = Path(".cache") / "fedquilt"
NOTHING_SET_ASIDE = (
    "no image could be set aside for validation: every client needs its patients for training "
    f"(a class with fewer than {KEPT_POSITIVES} positive patients at a client keeps them all), so "
    "the model of the last round is used"
)
UNKNOWN_REASON = "no label met the method's conditions"  # for a method that gives none

Observer = Callable[[str, dict[str, Any]], None]  # ("begin" | "notice" | "round" | "end", facts)


def run(  # noqa: PLR0913 (options by name)
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    cache: Path = CACHE,
    device: str = "cpu",
    engine: EngineName | EngineOptions = "auto",
    observe: Observer = lambda event, facts: None,
    splits: Splits | None = None,
    metrics: Metrics = NO_METRICS,
    attackers: Attackers | None = None,
    processes: Processes = ONE_PROCESS,
) -> RunFolder:
    """Run or resume a recipe, and return its run folder.

    Args:
        recipe: what to train, on what, by whom and for how long.
        out: the run folder; it must be new unless ``resume``.
        resume: continue after the last checkpoint in ``out``.
        cache: the folder for decoded images.
        device: where clients train, such as ``cpu`` or ``cuda``.
        engine: a name, or ``EngineOptions``.
        observe: called with "begin", "notice", "round" or "end", and what there is to tell.
        splits: the data, if it is already loaded.
        metrics: metrics of your own by name: functions of probabilities, labels and ``known``,
            each (N, C), that return a number. They are computed on the test images.
        attackers: clients that lie, to see what that does.
        processes: those that run the clients together; the first one alone writes and observes.
    """
    options = engine if isinstance(engine, EngineOptions) else EngineOptions(engine)
    check_engine(options, device, recipe.method.training.precision, recipe.privacy)
    folder = (RunFolder if is_first(processes) else FollowedFolder)(Path(out))
    with folder.begin(recipe, resume=resume):
        with _first_then_others(processes):  # the first one decodes the images
            use_marked = folder.validates_on_marked(recipe)
            simulation = simulate(recipe, cache, splits, use_marked=use_marked)
        _check_can_be_shared(recipe, simulation, processes)
        recipe.evaluation.decisions.check_classes(simulation.task.classes)
        check_can_be_summed(recipe.method, simulation.task, recipe.summation)
        if attackers is not None:
            simulation = replace(simulation, clients=attackers.poisoned(simulation.clients))
        run_ = _Run(recipe, folder, simulation, device, options, observe, metrics, processes)
        run_.engine.attackers = attackers
        run_.prepare()
        processes.share(None)  # nothing is written before all have read and checked
        folder.keep(recipe, simulation.allocation)
        run_.say_begin()
        try:
            run_.train()
        except KeyboardInterrupt:
            if processes.count == 1:  # else the others are at some other place of the round
                run_.recorder.checkpoints.save()
            raise
        if is_first(processes):
            run_.finish()
    return folder


@contextmanager
def _first_then_others(processes: Processes) -> Iterator[None]:
    if not is_first(processes):
        processes.share(None)
    yield
    if is_first(processes):
        processes.share(None)


def _check_can_be_shared(recipe: Recipe, simulation: Simulation, processes: Processes) -> None:
    """Raise UserError if these clients cannot be shared among so many processes."""
    if processes.count > 1 and recipe.robust.rule != "none":
        raise UserError(
            f"robust.rule = {recipe.robust.rule!r} compares all updates of a round in one process, "
            f"and this run has {processes.count}; leave out --processes, or the rule"
        )
    if processes.count > len(simulation.clients):
        raise UserError(
            f"{processes.count} processes share {counted(len(simulation.clients), 'client')}: "
            "each needs at least one; use fewer processes"
        )


class _Run:
    """One run: its engine, its recorder and the server's state, from restoring to the result."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        simulation: Simulation,
        device: str,
        engine: EngineOptions,
        observe: Observer,
        metrics: Metrics,
        processes: Processes,
    ) -> None:
        self.recipe, self.folder, self.simulation = recipe, folder, simulation
        self.device, self.metrics, self.processes = device, metrics, processes
        self.observe = observe if is_first(processes) else lambda event, facts: None
        self.recorder = RoundRecorder(
            recipe,
            simulation.task,
            folder,
            evaluate=self._evaluate,
            validate=self._validate,
            further_facts=self._facts_of_clients,
            checkpoint_every=recipe.checkpoint_every,
            processes=processes,
        )
        self.audit = PseudoLabelAudit(simulation.splits.train, simulation.clients)
        self.tally = ActivityTally()
        self.engine = build_engine(
            engine,
            simulation.task,
            simulation.clients,
            states=self.recorder.checkpoints,
            audit=self.audit,
            tally=self.tally,
            device=device,
            transforms=(DisclosureFloor(recipe.min_cell),),
            rules=recipe.rules,
        )
        self.engine.processes = processes
        if recipe.state_numbers == "bfloat16":
            self.engine.store_in_bfloat16()
        self.server: State = {}
        self.first_round = 0
        self._evaluated: tuple[State, Assessment] | None = None  # the last evaluation's server

    def prepare(self) -> None:
        """Load the newest complete checkpoint, or initialise the server.

        Hooks that check the data are called for every client: what they refuse, no run folder may
        hold.
        """
        method, task = self.recipe.method, self.simulation.task
        saved, complaints = self.recorder.checkpoints.restore()
        for complaint in complaints:
            self.observe("notice", {"text": complaint})
        if self.recipe.validation.share > 0 and not self.simulation.validation:
            self.observe("notice", {"text": NOTHING_SET_ASIDE})
        annotates = [data.known.any(0) for data in self.simulation.clients.values()]
        undefended = undefended_notice(self.recipe.robust, task.classes, annotates)
        if undefended is not None:
            self.observe("notice", {"text": undefended})
        if saved is None:
            self.server = start_server(method, task, self.engine)
            names = self.simulation.clients
            for name in own_clients(self.processes, names, names):
                method.init_client(self.simulation.clients[name])
            need = states_need(self.recipe, self.simulation, self.engine, self.server)
            if need is not None:
                self.observe("notice", {"text": said(need, self.folder.path)})
        else:
            self.server, self.first_round = saved.server, saved.round_count
            self.engine.recall_pseudo_labels(method)
            self.audit.share(self.processes)

    def say_begin(self) -> None:
        task = self.simulation.task
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
        rounds = self.recorder.rounds(self.engine, self.server, self.first_round, self.engine)
        for self.server, record in rounds:
            self.folder.result.unlink(missing_ok=True)  # of the shorter run that this one extends
            for notice in bound_notices(record):
                self.observe("notice", {"text": notice})
            self.observe("round", record)

    def finish(self) -> None:
        """Write the models and the result; doing so twice changes nothing.

        The first process does so alone: it knows the others' states since the last save.
        """
        self.engine.processes = ONE_PROCESS
        history = self.folder.history.read()
        models = models_of(self.recipe.method, self.server, self.engine)
        further = {"pseudo_labels": self.audit.summary(), **self._activity(history)}
        given = self.recipe, self.folder, self.simulation, self.engine, self.observe
        end = RunEnd(*given, self.metrics)
        served = choose_models(
            models,
            self.recorder.checkpoints,
            self.recorder.choices,
            self.recipe.validation,
            trained=len(history),
            planned=self.recipe.rounds,
            is_validated=bool(self.simulation.validation),
        )
        if self.simulation.validation:
            self.observe("notice", {"text": f"served: {served.facts['why']}"})
        further |= {"environment": environment(self.device)}
        before = None
        if self._evaluated is not None and self._evaluated[0] is self.server:
            before = self._evaluated[1]  # the last round is not evaluated twice
        result = end.write(served, history, further, before)
        self.observe("end", result)

    def _logits(self, models: Mapping[str, Weights]) -> Iterator[tuple[str, Tensor]]:
        task, test = self.simulation.task, self.simulation.splits.test
        return model_logits(models, self.engine, task, test.images, self.recipe.evaluation)

    def _validate(self, server: State, rounds: int) -> RoundValidation | None:
        if not self.simulation.validation:
            return None
        models = models_of(self.recipe.method, server, self.engine)
        facts = validate(self.simulation, self.engine, models, self.recipe.min_cell)
        return RoundValidation(facts, models)

    def _evaluate(self, server: State) -> RoundMetrics:
        logits = dict(self._logits(models_of(self.recipe.method, server, self.engine)))
        if not is_first(self.processes):
            return RoundMetrics({}, {})
        test, settings = self.simulation.splits.test, self.recipe.evaluation
        assessment = assess(logits.items(), test, settings, metrics=self.metrics)
        self._evaluated = (server, assessment)
        return RoundMetrics(assessment.averages, assessment.per_class("auc"))

    def _facts_of_clients(self) -> Record:
        self.audit.share(self.processes)
        summary, activity = self.audit.summary(), self.tally.take(self.processes)
        found: Record = {"pseudo_labels": summary, "activity": activity}
        return {name: facts for name, facts in found.items() if facts}

    def _activity(self, history: Sequence[Record]) -> Record:
        """What only this method did, at most in a round; a sentence for each count of 0."""
        method = self.recipe.method
        counts = most_in_a_round(record.get("activity", {}) for record in history)
        size = RunSize.of(self.simulation.clients.values(), self.recipe.rounds)
        counts |= method.server_activity(self.server, size)
        reasons = {what: method.why_idle(what, size) for what in counts if not counts[what]}
        idle = [f"0 {what}: {why or UNKNOWN_REASON}" for what, why in reasons.items()]
        return {"activity": counts, "idle": idle}
