"""Optuna's search: its storage keeps the trials, and may be shared by several machines."""

from __future__ import annotations

import time
from typing import Any

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.runs.sweep.plan import Span, SweepPlan
from fedquilt.runs.sweep.search import Outcome, Trial

BEAT_SECONDS = 30.0  # between signs of life of a running trial
LOST_SECONDS = 600.0  # without a sign of life a trial of another machine is given up
PLACE, BEAT, LOST, ERROR = "place", "alive", "lost", "error"  # attributes of a trial


def open_storage(storage: str) -> Any:
    """Open a database's URL, or a file to which all machines append."""
    try:
        import optuna
    except ImportError:
        raise UserError(
            "sweep.search = 'optuna' needs the package optuna: pip install 'fedquilt[optuna]'"
        ) from None
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if "://" in storage:
        try:
            return optuna.storages.RDBStorage(storage)
        except Exception as error:  # of any database and its driver
            raise UserError(f"the storage {storage} cannot be opened: {error}") from error
    return optuna.storages.JournalStorage(JournalFileBackend(storage))


class OptunaSearch:
    """The trials of one method as an Optuna study; a killed trial goes on at its own machine."""

    def __init__(self, plan: SweepPlan, method: str, storage: Any, place: str) -> None:
        """``place`` names the run folders of this machine: only there a trial can go on."""
        import optuna

        self._states = optuna.trial.TrialState
        self._plan, self._method, self._place = plan, method, place
        self._choices, self._budget = plan.choices(method), plan.sweep.trials or 0
        self._storage = storage
        self._study = optuna.create_study(
            storage=storage,
            study_name=f"{plan.name}/{method}/{plan.key(method)}",
            direction="maximize",
            load_if_exists=True,
        )
        self._waiting = [
            _trial_of(method, each)
            for each in self._study.get_trials()
            if each.state == self._states.RUNNING and each.user_attrs.get(PLACE) == place
        ]
        self._running: set[int] = set()
        self._beat = 0.0

    def ask(self) -> Trial | None:
        """Return a trial that was stopped here, or a new one if the budget allows it."""
        trial = self._waiting.pop(0) if self._waiting else self._new()
        if trial is not None:
            self._running.add(trial.number)
        return trial

    def _new(self) -> Trial | None:
        trials = self._study.get_trials()
        lost = sum(LOST in each.user_attrs for each in trials)
        if len(trials) >= self._budget + lost:
            return None
        self._study.sampler = self._sampler(len(trials))
        asked = self._study.ask()
        # Numbers are given once, also to machines that ask at the same time.
        if asked.number >= self._budget + lost:
            asked.set_user_attr(LOST, "beyond the budget")
            self._study.tell(asked.number, state=self._states.FAIL)
            return None
        for name, choice in self._choices.items():
            if not isinstance(choice, Span):
                asked.suggest_categorical(name, choice)
            elif isinstance(choice.low, int) and isinstance(choice.high, int):
                asked.suggest_int(name, choice.low, choice.high, log=choice.log)
            else:
                asked.suggest_float(name, choice.low, choice.high, log=choice.log)
        asked.set_user_attr(BEAT, time.time())
        asked.set_user_attr(PLACE, self._place)  # the last thing: now it can go on here
        return Trial(self._method, asked.number, dict(asked.params))

    def _sampler(self, done: int) -> Any:
        """Return a sampler whose draws depend on the seed and on how far the study is."""
        import optuna

        seed = seed_for("optuna", self._plan.sweep.search_seed, self._method, done) % 2**32
        startup = max(2, min(10, self._budget // 3))  # random, before it models anything
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)

    def tell(self, outcome: Outcome) -> None:
        number = outcome.trial.number
        self._running.discard(number)
        if outcome.score is None:
            self._mark(number, ERROR, outcome.error or "")
            self._study.tell(number, state=self._states.FAIL)
        else:
            self._study.tell(number, outcome.score)

    def outcomes(self) -> list[Outcome]:
        return [
            Outcome(_trial_of(self._method, each), each.value, each.user_attrs.get(ERROR))
            for each in self._study.get_trials()
            if each.state.is_finished() and LOST not in each.user_attrs
        ]

    def keep_alive(self) -> None:
        """Give a sign of life for the trials that run here."""
        if time.monotonic() - self._beat < BEAT_SECONDS:
            return
        self._beat = time.monotonic()
        for number in self._running:
            self._mark(number, BEAT, time.time())

    def running_elsewhere(self) -> int:
        """Count them; a trial without a sign of life is given up, and its budget is free again."""
        count = 0
        for each in self._study.get_trials():
            if each.state != self._states.RUNNING or each.number in self._running:
                continue
            silent = time.time() - each.user_attrs.get(BEAT, 0.0)
            if silent < LOST_SECONDS:
                count += 1
            else:
                self._mark(each.number, LOST, "no sign of life")
                self._study.tell(each.number, state=self._states.FAIL)
        return count

    def claims_comparison(self) -> bool:
        """Whether this machine is the one that runs the comparison: the first that asks."""
        if "comparison" not in self._study.user_attrs:
            self._study.set_user_attr("comparison", self._place)
        return bool(self._study.user_attrs["comparison"] == self._place)

    def _mark(self, number: int, name: str, value: Any) -> None:
        frozen = self._study.get_trials()[number]
        self._storage.set_trial_user_attr(frozen._trial_id, name, value)


def _trial_of(method: str, frozen: Any) -> Trial:
    return Trial(method, frozen.number, dict(frozen.params))
