"""SiteClient: answers the server's requests within the site's policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedquilt.core.errors import UserError
from fedquilt.core.noise import SystemNoise
from fedquilt.core.payload import Update
from fedquilt.core.shown_text import shown
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.core.version import VERSION
from fedquilt.deploy.audit_log import AuditLog, part_sizes
from fedquilt.deploy.protocol.lineage import lineage_in, tree_digest
from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.protocol.messages import (
    END,
    HISTOGRAMS,
    REPORT,
    SEE_LOG,
    SURVEY,
    TRAIN,
    VALIDATE,
    Message,
    failure,
    pack,
    repeated,
    unpack,
    update_message,
)
from fedquilt.deploy.secure.site_half import RefusedSum
from fedquilt.deploy.shared_thresholds import fits_at_sites, from_tensors, reports_at_sites
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.deploy.site.compact_payload import SitePayload
from fedquilt.deploy.site.data import SiteData
from fedquilt.deploy.site.judge import SiteJudge
from fedquilt.deploy.site.masked_update import round_vector, survey_vector
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.site.model import KeptModel, model_at
from fedquilt.deploy.site.noise import Budget, SiteNoise
from fedquilt.deploy.site.received_network import NetworkCheck
from fedquilt.deploy.site.request_check import RequestCheck
from fedquilt.deploy.site.secure_answers import Answer, SecureAnswers
from fedquilt.deploy.study import Study
from fedquilt.privacy.noisy_parts import SURVEY as BEFORE_ROUNDS
from fedquilt.privacy.score_histograms import PART as HISTOGRAMS_PART
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.site_report import PART as REPORT_PART
from fedquilt.privacy.transform import apply_survey_transforms, apply_transforms
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import State

log = logging.getLogger(__name__)


class SiteClient:
    """A site's data, states, model and policy in one study."""

    def __init__(
        self,
        study: Study,
        data: SiteData,
        memory: SiteMemory,
        policy: SitePolicy,
        audit_log: AuditLog,
        device: str = "cpu",
        data_hash: str = "",
        key: Ed25519PrivateKey | None = None,
    ) -> None:
        self._study, self._data, self._audit_log = study, data.training, audit_log
        self._data_hash = data_hash
        self._states, self._model, self._answers = memory.states, memory.model, memory.answers
        self._policy = policy.tightened(SitePolicy(min_cell=study.recipe.min_cell))
        self._transforms = (self._policy,)
        # The server sends all weights, so a site does not need the pretrained file.
        self._task = replace(study.task, model=study.task.model.for_loading())
        self._payload = SitePayload(study)
        self._workspace = replace(Workspace.of(self._task, torch.device(device)), draws=SystemNoise)
        self._network = NetworkCheck(self._task)
        self._judge = SiteJudge(
            self._task, self._workspace, self._policy, data, study.recipe.evaluation
        )
        budget = Budget(study, memory.ledger, self._policy.max_epsilon, memory.earlier)
        self._noise = SiteNoise(
            self._task, self._data, budget, memory.folder, audit_log, SystemNoise
        )
        self._handlers: dict[str, Callable[[Message], Answer]] = {
            SURVEY: self._survey,
            TRAIN: self._train,
            VALIDATE: self._validate,
            END: self._end,
            HISTOGRAMS: self._histograms,
            REPORT: self._report,
        }
        self._secure, name = None, self._data.name
        if study.is_secure:
            if key is None:
                raise UserError(f"{study.name} sums securely, and {name} has no sums_key")
            self._secure = SecureAnswers(study, name, key, memory.sums, self._policy)
            # What cannot be masked does not leave: no other request is answered.
            masked = {SURVEY: self._survey, TRAIN: self._train, END: self._end}
            self._handlers = {**masked, **self._secure.handlers()}
        self._check = RequestCheck(study, name, self._policy, memory.folder)
        # Without an agreed number the site declares its own, which caps the weight of its updates.
        is_agreed = study.site(self._data.name).images is not None
        self._declared = {} if is_agreed else {"images": len(self._data)}

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request; if anything fails, a reply with the error's name."""
        try:
            return self._answer(request)
        except OSError as error:  # the audit log, such as a full disk: nothing leaves without it
            log.exception("a request cannot be recorded")
            return failure(b"", self._data.name, type(error).__name__, SEE_LOG)

    def _answer(self, request: bytes) -> bytes:
        facts: dict[str, Any] = self._reply_facts({})
        try:
            self._network.check_size(len(request))
            message = unpack(request)
            facts = self._reply_facts(message.facts)
            self._check.request(message.facts, self._handlers)
            self._audit_log.record("received", **_log_facts(facts), bytes=len(request))
            answer = self._handlers[facts["kind"]](message)
            declared = self._declared if facts["kind"] in (SURVEY, TRAIN) else {}
            given = {**facts, **declared, **answer.message.facts}
            reply = pack(Message(given, answer.message.tree))
        except (BadMessage, RefusedRequest) as error:
            return self._error_reply(facts, type(error).__name__, str(error))
        except (RefusedSum, RefusedUpdate) as error:
            self._audit_log.record("refused", **_log_facts(facts), reason=str(error))
            # The reason may quote a number of the update, which no one else may see.
            text = str(error) if isinstance(error, RefusedSum) else SEE_LOG
            return self._error_reply(facts, type(error).__name__, text)
        except Exception as error:
            # The text may contain file names, so it stays in the site's log.
            log.exception("round %s failed", facts.get("round"))
            return self._error_reply(facts, type(error).__name__, SEE_LOG)
        self._audit_log.record("sent", **_log_facts(facts), bytes=len(reply), **answer.logged)
        return reply

    def _survey(self, message: Message) -> Answer:
        method, study = self._study.recipe.method, self._study
        self._answers.survey(self._data_hash)
        answer = self._noise.answer(
            SURVEY,
            BEFORE_ROUNDS,
            self._data_hash,
            lambda: method.survey(self._data),
            lambda update: apply_survey_transforms(self._transforms, method, self._data, update),
        )
        if self._secure is None:
            return _open(answer)
        return self._secure.masked(
            message, self._data_hash, lambda: survey_vector(study, self._data.name, answer)
        )

    def _admit(self, message: Message) -> tuple[Message, str]:
        """Record the broadcast; return it with what does not travel, and the hash of what did.

        Raise RefusedRequest unless it follows from those before.
        """
        lineage, index = lineage_in(message.facts), message.facts["round"]
        digest = tree_digest(message.tree)
        for each in self._answers.admit(lineage, index, digest):
            log.warning("the study goes back to round %d: %s", each.to_round, shown(each.reason))
            self._audit_log.record(
                "went back", study=self._study.hash, to_round=each.to_round, reason=each.reason
            )
        whole = self._payload.completed(message)
        norm = self._network.check(whole.tree, self._answers.so_far.norm)
        self._answers.record(lineage, index, digest, norm, kind=message.facts["kind"])
        return whole, digest

    def _train(self, message: Message) -> Answer:
        message, digest = self._admit(message)
        if self._secure is None:
            return _open(self._trained(message, digest))
        study, name, index = self._study, self._data.name, message.facts["round"]
        return self._secure.masked(
            message,
            digest,
            lambda: round_vector(study, name, index, message.tree, self._trained(message, digest)),
        )

    def _trained(self, message: Message, digest: str) -> Update:
        method, round_index = self._study.recipe.method, message.facts["round"]
        before, kept = self._states.before(round_index), {}

        def train() -> Update:
            update, state = run_client(
                method, self._task, self._workspace, self._data, message.tree, before, round_index
            )
            kept.update(state)
            return update

        def release(update: Update) -> Update:
            update = apply_transforms(self._transforms, method, self._data, kept["method"], update)
            update, left = self._payload.encoded(self._data.name, update, before, round_index)
            self._states.keep(round_index, kept | left)
            self._keep_model(message, kept)
            return update

        return self._noise.answer(TRAIN, round_index, digest, train, release)

    def _validate(self, message: Message) -> Answer:
        """Judge the network received; its round is done, so the site keeps no new state."""
        self._judge.require_validation_allowed()
        message, _ = self._admit(message)
        model = self._model_in(message, {})
        if model is None:
            raise RefusedRequest("every site of this study has its own model and judges it alone")
        return self._noted(message, self._judge.validated(model.weights))

    def _end(self, message: Message) -> Answer:
        """Update the site's model from the final broadcast; the reply is empty."""
        message, _ = self._admit(message)
        if self._model_in(message, {}) is None:  # it has a part that only this site has
            self._keep_model(message, self._states.before(message.facts["round"]))
        else:  # perhaps of an early round, whose state is no longer kept
            self._keep_model(message, {})
        return _open({})

    def _histograms(self, message: Message) -> Answer:
        """Answer with histograms of the final model's scores, so that thresholds can be fitted."""
        self._judge.require_allowed(HISTOGRAMS_PART)
        if not fits_at_sites(self._study):
            raise RefusedRequest("this study fits no thresholds and no calibration")
        model = self._final_model(message)
        self._answers.once(HISTOGRAMS, tree_digest(model.weights))
        return self._noted(message, self._judge.histograms(model.weights))

    def _report(self, message: Message) -> Answer:
        """Keep the study's thresholds with the final model, and answer what the model is worth."""
        if not reports_at_sites(self._study):
            raise RefusedRequest("this study asks for no report of its sites")
        model, shared = self._final_model(message), from_tensors(message.tree, self._task.classes)
        self._answers.once(REPORT, tree_digest({"model": model.weights, "sent": message.tree}))
        own = self._judge.decisions(model.weights, shared, model.rounds)
        self._model.keep(replace(model, decisions=own))
        self._judge.require_allowed(REPORT_PART)
        return self._noted(message, self._judge.report(model.weights, shared))

    def _noted(self, message: Message, update: Update) -> Answer:
        """An answer without noise, which is in the ledger before it leaves."""
        self._noise.note(update, message.facts["round"])
        return _open(update)

    def _final_model(self, message: Message) -> KeptModel:
        model = self._model.read()
        if model is None or model.rounds != message.facts["round"] or model.kind == "part":
            raise RefusedRequest("this site has not received the whole model of the study's end")
        return model

    def _keep_model(self, message: Message, kept: State) -> None:
        model = self._model_in(message, kept)
        if model is not None:
            self._model.keep(model)

    def _model_in(self, message: Message, kept: State) -> KeptModel | None:
        rounds = message.facts["round"]  # finished by the server when it sent this
        return model_at(self._study, self._data.name, message.tree, kept, rounds)

    def _error_reply(self, facts: Mapping[str, Any], name: str, text: str) -> bytes:
        self._audit_log.record("failed", **_log_facts(facts), error=name)
        failure = {"error": name, "text": text}
        return pack(Message({**facts, **failure}, {}))

    def _reply_facts(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return repeated(request, "kind", "round") | {
            "study": self._study.hash,
            "version": VERSION,
            "site": self._data.name,
        }


def _open(update: Update) -> Answer:
    """An answer that the server can read."""
    return Answer(update_message({}, update), {"parts": part_sizes(update)})


def _log_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: facts[key] for key in ("kind", "round", "study") if key in facts}
