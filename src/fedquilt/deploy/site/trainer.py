"""``python -m fedquilt.deploy.site.trainer KIT SITE_TOML`` answers requests from a pipe."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import IO

from fedquilt.deploy.kit import Kit
from fedquilt.deploy.protocol.frames import read_frame, write_frame

SITE_LOG, SITE_TRAIL = "site.log", "audit.jsonl"


def main(kit_folder: str, settings_path: str) -> None:
    answers = _private_stdout()
    _end_with_parent()
    from fedquilt.deploy.site.settings import read_site_settings

    settings = read_site_settings(Path(settings_path))
    work = Path(settings.work_folder)
    work.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=work / SITE_LOG,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    serve(Kit(Path(kit_folder)), Path(settings_path), sys.stdin.buffer, answers)


def serve(kit: Kit, settings_path: Path, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Until the pipe ends; data that cannot be loaded are reported for every request."""
    from fedquilt.deploy.audit_log import AuditLog
    from fedquilt.deploy.protocol.messages import Message, pack, unpack
    from fedquilt.deploy.site.client import SiteClient
    from fedquilt.deploy.site.data import load_site_data
    from fedquilt.deploy.site.model import SiteModel
    from fedquilt.deploy.site.settings import read_site_settings
    from fedquilt.deploy.site.states import SiteStates, study_folder

    rounds, failure = None, {}
    try:
        settings, study, site = read_site_settings(settings_path), kit.study(), kit.role()
        work = Path(settings.work_folder)
        own = study_folder(work, study, site)
        rounds = SiteClient(
            study,
            load_site_data(study, site, settings),
            SiteStates(own),
            SiteModel(own),
            settings.policy,
            AuditLog(work / SITE_TRAIL),
            settings.device,
        )
    except Exception as error:
        logging.exception("the site cannot take part")
        failure = {"error": type(error).__name__, "text": "the site's own log says more"}
    with contextlib.suppress(EOFError):
        while True:
            request = read_frame(requests)
            if rounds is None:
                facts = dict(unpack(request).facts) | {"site": kit.role()}
                write_frame(answers, pack(Message(facts | failure, {})))
            else:
                write_frame(answers, rounds.answer(request))


def _private_stdout() -> IO[bytes]:
    """The pipe for answers; whatever a library prints goes to the error stream instead."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _end_with_parent() -> None:
    """A parent that was killed cannot tell: whoever adopted this process has another id."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
