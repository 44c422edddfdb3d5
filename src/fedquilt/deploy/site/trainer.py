"""The site's training process: ``python -m fedquilt.deploy.site.trainer KIT SITE_TOML``.

It reads requests from its standard input and writes replies to its standard output.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedquilt.core.child_process import end_with_parent
from fedquilt.core.log_files import rotating_log
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.protocol.frames import read_frame, write_frame

if TYPE_CHECKING:  # they import torch, which takes seconds
    from fedquilt.data.dataset import MultiLabelDataset
    from fedquilt.deploy.site.client import SiteClient


def main(kit_folder: str, settings_path: str) -> None:
    replies = _reply_pipe()
    end_with_parent()
    from fedquilt.deploy.site.settings import SITE_LOG, open_work_folder, read_site_settings

    work = open_work_folder(read_site_settings(Path(settings_path)))
    logging.basicConfig(level=logging.INFO, handlers=[rotating_log(work / SITE_LOG)])
    serve(Kit(Path(kit_folder)), Path(settings_path), sys.stdin.buffer, replies)


def serve(kit: Kit, settings_path: Path, requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until the pipe is closed; if the site cannot start, answer with errors."""
    from fedquilt.deploy.protocol.messages import SEE_LOG, failure

    client, why = None, ""
    try:
        client = open_client(kit, settings_path)
    except Exception as error:
        logging.exception("the site cannot take part")
        why = type(error).__name__
    with contextlib.suppress(EOFError):
        while True:
            request = read_frame(requests)
            if client is None:
                write_frame(replies, failure(request, kit.role(), why, SEE_LOG))
            else:
                write_frame(replies, client.answer(request))


def open_client(kit: Kit, settings_path: Path) -> SiteClient:
    """Return the site's client; what is damaged or has changed is in its audit log."""
    from fedquilt.data.images.content_hash import damaged_files
    from fedquilt.deploy.amendment import read_amendments
    from fedquilt.deploy.audit_chain import AUDIT_FILE
    from fedquilt.deploy.audit_log import AuditLog
    from fedquilt.deploy.secure.site_key import open_key
    from fedquilt.deploy.site.amended_study import take_over
    from fedquilt.deploy.site.client import SiteClient
    from fedquilt.deploy.site.data import image_cache, load_site_data
    from fedquilt.deploy.site.data_pin import DataPin, check_pin, pin_data
    from fedquilt.deploy.site.memory import SiteMemory
    from fedquilt.deploy.site.settings import read_site_settings
    from fedquilt.deploy.site.states import study_folder

    settings, study, site = read_site_settings(settings_path), kit.study(), kit.role()
    work = Path(settings.work_folder)
    folder, audit_log = study_folder(work, study, site), AuditLog(work / AUDIT_FILE)
    take_over(kit, work, audit_log)
    earlier = tuple(each.before.hash for each in read_amendments(kit.amendments))
    memory = SiteMemory.of(folder, study, settings.policy, work, earlier)
    key = open_key(settings.sums_key, study, site) if study.is_secure else None
    pins: list[DataPin] = []
    for path in damaged_files(image_cache(settings)):
        logging.warning("the decoded images in %s are damaged; they are decoded again", path.name)
        audit_log.record("damaged", what="decoded images", file=path.name, study=study.hash)

    def check(train: MultiLabelDataset) -> None:
        if check_pin(folder, train, has_state=not memory.states.is_empty()):
            audit_log.record("data changed", study=study.hash)
        pins.append(pin_data(folder, train))

    try:
        data = load_site_data(study, site, settings, check)
    except Exception as error:
        audit_log.record("failed", study=study.hash, error=type(error).__name__)
        raise
    device, seen = settings.device, pins[-1].hash
    return SiteClient(study, data, memory, settings.policy, audit_log, device, seen, key)


def _reply_pipe() -> IO[bytes]:
    """Take over standard output for replies; what libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


if __name__ == "__main__":
    main(*sys.argv[1:])
