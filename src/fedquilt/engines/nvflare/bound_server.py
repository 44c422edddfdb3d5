"""FLARE's server, listening on the study's address and no other, and able to tell its progress.

FLARE 2.9 binds loopback names to loopback and any other name to all addresses of the machine. It
asks two functions of its own about that; here they answer with the address the study names.
``server start`` looks afterwards at what is really listening.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.server import server_train
from nvflare.private.fed.app.utils import version_check
from nvflare.private.fed.server import fed_server
from nvflare.private.fed.server.server_cmd_modules import ServerCommandModules

from fedquilt.deploy.kit import Kit
from fedquilt.engines.nvflare.study_commands import StudyCommands


def main() -> None:
    version_check()
    arguments = server_train.parse_arguments()
    kit = Kit(Path(arguments.workspace))
    address = kit.study().server.bind
    fed_server._normalize_loopback_host = lambda host: address
    fed_server._is_loopback_host = lambda host: True
    ServerCommandModules.register_cmd_module(StudyCommands(kit))
    run_dir = arguments.workspace
    sys.exit(MainProcessMonitor.run(main_func=server_train.main, run_dir=run_dir, args=arguments))


if __name__ == "__main__":
    main()
