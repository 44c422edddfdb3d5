"""The server process: FLARE's server, bound to the study's address, with a progress command."""

from __future__ import annotations

import sys
from pathlib import Path

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.fuel.hci.conn import Connection
from nvflare.fuel.hci.proto import MetaStatusValue, make_meta
from nvflare.fuel.hci.reg import CommandModule, CommandModuleSpec, CommandSpec
from nvflare.fuel.hci.server.authz import PreAuthzReturnCode
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.private.fed.app.server import server_train
from nvflare.private.fed.app.utils import version_check
from nvflare.private.fed.server import fed_server
from nvflare.private.fed.server.server_cmd_modules import ServerCommandModules

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.workspace import DECIDE, PROGRESS, kit_files
from fedquilt.deploy.protocol.message_bounds import parse_facts
from fedquilt.deploy.server.decisions import EXCLUDE, decide
from fedquilt.deploy.server.status import progress_on_disk
from fedquilt.runs.run_folder import RunFolder


class StudyCommands(CommandModule):  # type: ignore[misc]
    """Adds commands for progress and decisions, which also work while no job is running."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def get_spec(self) -> CommandModuleSpec:
        handlers = {PROGRESS: self.send_progress, DECIDE: self.decide}
        commands = [
            CommandSpec(
                name=name,
                description="of fedquilt",
                usage=name,
                handler_func=handler,
                authz_func=lambda conn, args: PreAuthzReturnCode.REQUIRE_AUTHZ,
            )
            for name, handler in handlers.items()
        ]
        return CommandModuleSpec(name="fedquilt", cmd_specs=commands)

    def send_progress(self, conn: Connection, args: list[str]) -> None:
        study = self._kit.study()
        facts = progress_on_disk(study, self._kit.run_folder(study))
        conn.append_dict(facts, meta=make_meta(MetaStatusValue.OK))

    def decide(self, conn: Connection, args: list[str]) -> None:
        """Record a decision, JSON in hexadecimal; an excluded site loses its connection at once."""
        study, by = self._kit.study(), str(conn.get_prop(ConnProps.USER_NAME, "coordinator"))
        try:
            asked = parse_facts(bytes.fromhex(args[1] if len(args) == 2 else ""))
            if not isinstance(asked, dict):
                raise UserError("a decision is a table")
            made = decide(study, RunFolder(self._kit.run_folder(study)), asked, by)
            if made.kind == EXCLUDE:
                conn.app_ctx.disable_clients([made.site])
        except (UserError, ValueError, OSError) as error:
            answer = {"refused": str(error)}
        else:
            answer = {"decided": made.kind}
        conn.append_dict(answer, meta=make_meta(MetaStatusValue.OK))


def main() -> None:
    version_check()
    arguments = server_train.parse_arguments()
    kit = Kit(kit_files(Path(arguments.workspace))["kit"])
    address = kit.study().server.bind
    # FLARE binds to all addresses unless it takes the host for loopback.
    fed_server._normalize_loopback_host = lambda host: address
    fed_server._is_loopback_host = lambda host: True
    ServerCommandModules.register_cmd_module(StudyCommands(kit))
    run_dir = arguments.workspace
    sys.exit(MainProcessMonitor.run(main_func=server_train.main, run_dir=run_dir, args=arguments))


if __name__ == "__main__":
    main()
