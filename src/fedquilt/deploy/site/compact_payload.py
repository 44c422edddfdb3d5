"""SitePayload: what a study agreed to send in fewer bytes, at the site."""

from __future__ import annotations

from dataclasses import replace

from fedquilt.core.compact_payload import encoded_update
from fedquilt.core.payload import Update
from fedquilt.deploy.protocol.lineage import tree_digest
from fedquilt.deploy.protocol.messages import Message
from fedquilt.deploy.site.answers import RefusedRequest
from fedquilt.deploy.study import Study
from fedquilt.engines.sequential import UNSENT
from fedquilt.training.client_step import names_of_draws
from fedquilt.training.fixed_buffers import with_fixed
from fedquilt.training.method import State


class SitePayload:
    """Encodes what leaves the site, and completes what arrives."""

    def __init__(self, study: Study) -> None:
        self._options = study.recipe.payload
        # A site has no file with initial weights; the fixed buffers do not depend on it.
        self._task = replace(study.task, model=replace(study.task.model, weights="random"))

    def encoded(
        self, site: str, update: Update, before: State, round_index: int
    ) -> tuple[Update, State]:
        """Return the update as it travels, and what the site's state keeps of the rest."""
        if not self._options.is_lossy:
            return update, {}
        names = names_of_draws(self._task, site, round_index)
        found, left = encoded_update(update, before.get(UNSENT, {}), self._options, *names)
        return found, {UNSENT: left} if left else {}

    def completed(self, message: Message) -> Message:
        """Return a broadcast with the buffers that do not travel.

        Raise RefusedRequest if the server has built others: both would train different networks.
        """
        if self._options.send_fixed or not self._task.layout.fixed:
            return message
        if message.facts.get("fixed") != tree_digest(self._task.fixed_buffers):
            raise RefusedRequest(
                "the server's fixed buffers, such as text vectors, are not those that this site "
                "has built; install the same version on both, or set payload.send_fixed = true"
            )
        return replace(message, tree=with_fixed(message.tree, self._task))
