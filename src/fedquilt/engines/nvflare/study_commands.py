"""StudyCommands: what the server itself answers about the study, with or without a job."""

from __future__ import annotations

from nvflare.fuel.hci.conn import Connection
from nvflare.fuel.hci.proto import MetaStatusValue, make_meta
from nvflare.fuel.hci.reg import CommandModule, CommandModuleSpec, CommandSpec
from nvflare.fuel.hci.server.authz import PreAuthzReturnCode

from fedquilt.deploy.kit import Kit
from fedquilt.deploy.progress import progress_on_disk
from fedquilt.engines.nvflare.local_files import PROGRESS


class StudyCommands(CommandModule):  # type: ignore[misc]
    """FLARE asks a running job only; between two jobs there is none to ask."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def get_spec(self) -> CommandModuleSpec:
        progress = CommandSpec(
            name=PROGRESS,
            description="how far the study is, by its run folder",
            usage=PROGRESS,
            handler_func=self.tell_progress,
            authz_func=lambda conn, args: PreAuthzReturnCode.REQUIRE_AUTHZ,
        )
        return CommandModuleSpec(name="fedquilt", cmd_specs=[progress])

    def tell_progress(self, conn: Connection, args: list[str]) -> None:
        study = self._kit.study()
        facts = progress_on_disk(study, self._kit.run_folder(study))
        conn.append_dict(facts, meta=make_meta(MetaStatusValue.OK))
