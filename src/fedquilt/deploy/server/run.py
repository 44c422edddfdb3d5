"""ServerRun: the server side of a study. It writes a run folder like a simulation's."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.tree import Weights
from fedquilt.deploy.amendment import Amendment
from fedquilt.deploy.audit_chain import AUDIT_FILE
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.protocol.channel import Channel
from fedquilt.deploy.protocol.messages import HAS_LEFT
from fedquilt.deploy.server.broadcast_log import BROADCASTS_FILE, BroadcastLog
from fedquilt.deploy.server.decisions import LEFT, Decision, Decisions
from fedquilt.deploy.server.declared_images import SITES_FILE, DeclaredImages
from fedquilt.deploy.server.joining import pending_amendment, require_surveyed
from fedquilt.deploy.server.remaining_sites import RemainingSites, remaining_task, require_quorum
from fedquilt.deploy.server.remote_engine import RemoteEngine
from fedquilt.deploy.server.result import contributions, site_allocation, study_result
from fedquilt.deploy.server.server_test import ServerTest
from fedquilt.deploy.server.study_end import StudyEnd
from fedquilt.deploy.server.study_validation import StudyValidation
from fedquilt.deploy.server.sum_journal import SumJournal
from fedquilt.deploy.server.survey_notices import survey_notices
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.study import Study
from fedquilt.reports.html.card import Card, keep_card
from fedquilt.reports.html.run_report import try_run_report
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.fitted_decisions import store_decisions
from fedquilt.runs.round_recorder import (
    SERVER,
    Record,
    RoundRecorder,
    bound_notices,
)
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.saved_models import save_models
from fedquilt.runs.served_models import ServedModels, choose_models
from fedquilt.training.agreed_bounds import undefended_notice
from fedquilt.training.method import State
from fedquilt.training.rounds import start_server

RecordObserver = Callable[[dict[str, Any]], None]  # receives round records and notices

log = logging.getLogger(__name__)


class ServerRun:
    """Runs the rounds of a study and writes its history, checkpoints and result.

    Args:
        observe: called with every round's record and every notice.
        should_stop: asked before the first and after every round; True ends the run.
        cache: the folder of the data cache, by default inside the run folder.
        amendments: by which sites may join the run that is in the folder.
    """

    def __init__(
        self,
        study: Study,
        folder: Path,
        channel: Channel,
        *,
        observe: RecordObserver = lambda record: None,
        should_stop: Callable[[], bool] = lambda: False,
        cache: Path | None = None,
        amendments: Sequence[Amendment] = (),
    ) -> None:
        self.study, self.folder = study, RunFolder(folder)
        self.task = study.task
        self._channel, self._observe, self._should_stop = channel, observe, should_stop
        self._cache = folder / "cache" if cache is None else cache
        self.decisions = Decisions(folder)
        self._departed = self.decisions.departed()  # before this job
        self._amendments = amendments

    def run(self, *, resume: bool) -> bool:
        """Run all remaining rounds and write the result; return False if stopped before that."""
        recipe = self.study.recipe
        with self.folder.begin(recipe, resume=resume):
            joining = pending_amendment(self.folder, self.study, self._amendments, self._departed)
            if joining is None:
                self.folder.keep(recipe, site_allocation(self.study))
            audit_log = AuditLog(self.folder.path / AUDIT_FILE)
            self._images = DeclaredImages(self.study, self.folder.path / SITES_FILE)
            self._broadcasts = BroadcastLog(self.folder.path / BROADCASTS_FILE)
            self._test = ServerTest(self.study, self._cache)
            remaining = remaining_task(self.study, self._departed)
            self.engine = RemoteEngine(
                self.study,
                self.task,
                RemainingSites(self._channel, self.decisions.departed, audit_log),
                audit_log,
                self._images,
                self._broadcasts,
                SumJournal(self.folder.path) if self.study.is_secure else None,
                remaining.clients,
            )
            self.recorder = RoundRecorder(
                recipe,
                remaining,
                self.folder,
                evaluate=self._test.evaluate,
                validate=StudyValidation(self.study, self.engine).validate,
                further_facts=self._exchange_facts,
                checkpoint_every=1,  # whatever the recipe says: sites keep a few rounds' states
            )
            self.recorder.checkpoints.kept = self.study.rules.kept_rounds
            server, first_round = self._restore()
            if joining is not None:
                server = self._admit(joining, server, first_round, audit_log)
            if not self._train(server, first_round):
                return False
            self._finish()
        return True

    def _restore(self) -> tuple[State, int]:
        checkpoints, recipe = self.recorder.checkpoints, self.study.recipe
        self._go_back()
        saved, complaints = checkpoints.restore()
        for complaint in complaints:
            self._notice(complaint)
        if saved is None:
            server, first_round = start_server(recipe.method, self.task, self.engine), 0
            checkpoints.advance(0, server)
            checkpoints.save()  # so that a resumed study does not repeat the survey
        else:
            server, first_round = saved.server, saved.round_count
            self._notice(f"resumed after round {first_round}", round=first_round)
        for notice in survey_notices(self.study, self.folder.path / AUDIT_FILE):
            self._notice(notice)
        annotates = [annotated_by(self.study, site) for site in self.study.site_names]
        undefended = undefended_notice(recipe.robust, self.study.classes, annotates)
        for each in (self._images.notice(), undefended):
            if each is not None:
                self._notice(each)
        return server, first_round

    def _go_back(self) -> None:
        """Carry out what the coordinator has decided about earlier rounds since the last job."""
        for each in self.decisions.rollbacks()[self._broadcasts.decided :]:
            self.recorder.checkpoints.roll_back(each.to_round)
            self.folder.result.unlink(missing_ok=True)  # the study is no longer done
            self._broadcasts.carry_out(each)
            self._notice(f"went back to round {each.to_round}: {each.reason}", round=each.to_round)

    def _admit(
        self, amendment: Amendment, server: State, rounds: int, audit_log: AuditLog
    ) -> State:
        """Survey all sites again, for those that join, and take up the new agreement."""
        survey = self.engine.survey(self.study.recipe.method)
        require_surveyed(amendment, survey.cohort)
        server = self.study.recipe.method.surveyed_again(server, survey)
        self.recorder.checkpoints.advance(rounds, server)
        self.recorder.checkpoints.save()
        audit_log.record(
            "amended",
            before=amendment.before.hash,
            after=amendment.after.hash,
            joining=list(amendment.joining),
            reason=amendment.reason,
            agreed=[each.site for each in amendment.agreements],
        )
        self.folder.partition.unlink()
        self.folder.keep(self.study.recipe, site_allocation(self.study))
        joined = ", ".join(amendment.joining)
        self._notice(f"from round {rounds + 1} on with {joined}: {amendment.reason}")
        return server

    def _must_end(self) -> bool:
        """Whether this job ends here, for a new one that does what was decided."""
        decisions = self.decisions
        return (
            self._should_stop()
            or decisions.paused() is not None
            or len(decisions.rollbacks()) > self._broadcasts.decided
            or decisions.departed() != self._departed
        )

    def _note_who_left(self, record: dict[str, Any]) -> None:
        for site, why in record["missing"].items():
            if why.startswith(HAS_LEFT) and site not in self.decisions.departed():
                reason = why.removeprefix(HAS_LEFT).strip(": ")
                self.decisions.record(Decision(kind=LEFT, reason=reason, by=site, site=site))
                self._notice(f"{site} has left the study: {reason}")

    def _train(self, server: State, first_round: int) -> bool:
        self._server = server
        if (why := self.decisions.stopped()) is not None:
            self._notice(f"stopped after round {first_round}: {why}")
            return True
        if first_round < self.task.round_count:
            if self._must_end():
                return False
            require_quorum(self.study, self._departed)
        rounds = self.recorder.rounds(self.engine, server, first_round)
        for self._server, record in rounds:
            for notice in bound_notices(record):
                self._notice(notice)
            self._observe(record)
            self._note_who_left(record)
            if (why := self.decisions.stopped()) is not None:
                self._notice(f"stopped after round {record['round']}: {why}")
                return True
            if self._must_end() and record["round"] < self.task.round_count:
                return False
        return True

    def _exchange_facts(self) -> Record:
        """What went over the network, instead of the sizes of tensors, and who was missing."""
        last, validation = self.engine.last_exchange, self.engine.last_validation
        return {
            "bytes_down": last.bytes_down + validation.bytes_down,
            "bytes_up": last.bytes_up + validation.bytes_up,
            "missing": last.missing,
            "ended": time.time(),
            **({} if last.attempt is None else {"attempt": last.attempt}),
        }

    def _finish(self) -> None:
        method, recipe = self.study.recipe.method, self.study.recipe
        history = self.folder.history.read()
        weights, server, served = method.global_weights(self._server), self._server, None
        if weights is not None:
            served = self._served(weights, len(history))
            save_models(self.folder, recipe, self.task, served.models, served)
            server = self._server_after(served.rounds[GLOBAL], len(history))
        rounds = len(history) if served is None else served.rounds[GLOBAL]
        # Before the result, which marks the study as done: resuming then sends it again.
        missed = self.engine.send_final(method.broadcast(server), rounds)
        for name, why in missed.items():
            self._notice(
                f"{name} did not receive the final model ({why}); it has an earlier round's"
            )
        end = StudyEnd(self.study, self.engine, self._notice)
        fitted = end.thresholds(rounds)
        store_decisions(self.folder, {GLOBAL: fitted} if fitted else {})
        logits = self._test.logits(server)
        result = study_result(self.study, history, self._test.report(logits, fitted), missed)
        result |= {"contributions": contributions(self.study, history, self.decisions.departed())}
        result |= {} if self.decisions.stopped() is None else {"stopped": self.decisions.stopped()}
        result |= {} if served is None else {"served": dict(served.facts)}
        result |= end.by_site(rounds, fitted)
        result |= self._test.intervals(logits, rounds, self.folder.path, self._notice, fitted)
        write_json(self.folder.result, result)
        self._write_report()

    def _served(self, weights: Weights, trained: int) -> ServedModels:
        recipe = self.study.recipe
        served = choose_models(
            {GLOBAL: weights},
            self.recorder.checkpoints,
            self.recorder.choices,
            recipe.validation,
            trained=trained,
            planned=recipe.rounds,
            is_validated=self.study.validates_at_sites,
        )
        if self.study.validates_at_sites:
            self._notice(f"served: {served.facts['why']}")
        return served

    def _server_after(self, rounds: int, trained: int) -> State:
        """Return the server's state after the round whose model is served."""
        kept = None if rounds == trained else self.recorder.checkpoints.best(SERVER)
        return self._server if kept is None else kept[1]

    def _write_report(self) -> None:
        if self.study.card != Card():
            keep_card(self.folder.path, self.study.card)
        complaint = try_run_report(self.folder.path)
        if complaint is not None:
            self._notice(complaint)

    def _notice(self, text: str, **facts: Any) -> None:
        log.warning("%s", text)
        self._observe({"notice": text, **facts})
