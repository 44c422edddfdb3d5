"""SiteClient: answers the server's requests within the site's policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fedquilt.core.payload import Update
from fedquilt.core.version import VERSION
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.audit_log import AuditLog, part_sizes
from fedquilt.deploy.protocol.messages import (
    END,
    EVERY_SITE,
    BadMessage,
    Message,
    pack,
    unpack,
    update_message,
)
from fedquilt.deploy.site.model import SiteModel, model_at
from fedquilt.deploy.site.states import SiteStates
from fedquilt.deploy.study import Study
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.transform import apply_survey_transforms, apply_transforms
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import State

log = logging.getLogger(__name__)


class RefusedRequest(ValueError):
    """Raised for a request that the site refuses; the reason is sent to the server."""


class SiteClient:
    """A site's data, states, model and policy in one study."""

    def __init__(
        self,
        study: Study,
        data: ClientData,
        states: SiteStates,
        model: SiteModel,
        policy: SitePolicy,
        audit_log: AuditLog,
        device: str = "cpu",
    ) -> None:
        self._study, self._data, self._audit_log = study, data, audit_log
        self._states, self._model = states, model
        self._policy = policy.tightened(SitePolicy(min_cell=study.recipe.min_cell))
        self._transforms = (self._policy,)
        # The server sends all weights, so a site does not need the pretrained file.
        self._task = replace(study.task, model=study.task.model.for_loading())
        self._workspace = Workspace.of(self._task, torch.device(device))
        # Without an agreed number the site declares its own, which caps the weight of its updates.
        is_agreed = study.site(data.name).images is not None
        self._declared = {} if is_agreed else {"images": len(data)}

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request; if anything fails, a reply with the error's name."""
        facts: dict[str, Any] = self._reply_facts({})
        try:
            message = unpack(request)
            facts = self._reply_facts(message.facts)
            self._check_request(message.facts)
            self._audit_log.record("received", **_log_facts(facts), bytes=len(request))
            update = self._handle(message)
            declared = {} if facts["kind"] == END else self._declared
            reply = pack(update_message({**facts, **declared}, update))
        except (BadMessage, RefusedRequest) as error:
            return self._error_reply(facts, type(error).__name__, str(error))
        except Exception as error:
            # The text may contain file names, so it stays in the site's log.
            log.exception("round %s failed", facts.get("round"))
            return self._error_reply(facts, type(error).__name__, "see the site's log")
        self._audit_log.record(
            "sent", **_log_facts(facts), bytes=len(reply), parts=part_sizes(update)
        )
        return reply

    def _handle(self, message: Message) -> Update:
        if message.facts["kind"] == "survey":
            return self._survey()
        return self._end(message) if message.facts["kind"] == END else self._train(message)

    def _survey(self) -> Update:
        method = self._study.recipe.method
        return apply_survey_transforms(
            self._transforms, method, self._data, method.survey(self._data)
        )

    def _train(self, message: Message) -> Update:
        method, round_index = self._study.recipe.method, message.facts["round"]
        update, kept = run_client(
            method,
            self._task,
            self._workspace,
            self._data,
            message.tree,
            self._states.before(round_index),
            round_index,
        )
        update = apply_transforms(self._transforms, method, self._data, kept["method"], update)
        self._states.keep(round_index, kept)
        self._keep_model(message, kept)
        return update

    def _end(self, message: Message) -> Update:
        """Update the site's model from the final broadcast; the reply is empty."""
        self._keep_model(message, self._states.before(message.facts["round"]))
        return {}

    def _keep_model(self, message: Message, kept: State) -> None:
        rounds = message.facts["round"]  # finished by the server when it sent this
        model = model_at(self._study, self._data.name, message.tree, kept, rounds)
        if model is not None:
            self._model.keep(model)

    def _check_request(self, facts: Mapping[str, Any]) -> None:
        """Raise RefusedRequest unless the request is part of the study this site agreed to."""
        if facts.get("version") != VERSION:
            raise RefusedRequest(
                f"the server runs fedquilt {facts.get('version')}, this site {VERSION}; install "
                "the same version on both"
            )
        if facts.get("study") != self._study.hash:
            raise RefusedRequest("this is not the study that the site's kit was made for")
        if facts.get("site") not in (self._data.name, EVERY_SITE):
            raise RefusedRequest(f"this request is for another site, not for {self._data.name!r}")
        if facts.get("kind") not in ("survey", "train", END):
            raise RefusedRequest(f"unknown request {facts.get('kind')!r}")
        refusal = self._policy.refuses_method(self._study.recipe.method)
        if refusal:
            raise RefusedRequest(refusal)
        index = facts.get("round")
        rounds = self._study.recipe.rounds
        expected = range(rounds, rounds + 1) if facts["kind"] == END else range(rounds)
        if type(index) is not int or index not in expected:
            raise RefusedRequest(f"the study has no round {index!r}")

    def _error_reply(self, facts: Mapping[str, Any], name: str, text: str) -> bytes:
        self._audit_log.record("failed", **_log_facts(facts), error=name)
        failure = {"error": name, "text": text}
        return pack(Message({**facts, **failure}, {}))

    def _reply_facts(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": request.get("kind"),
            "study": self._study.hash,
            "version": VERSION,
            "site": self._data.name,
            "round": request.get("round"),
        }


def _log_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: facts[key] for key in ("kind", "round", "study") if key in facts}
