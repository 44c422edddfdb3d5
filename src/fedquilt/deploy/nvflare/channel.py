"""FlareChannel: sends each request as a FLARE task and passes on the replies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedquilt.deploy.nvflare.executor import MESSAGE
from fedquilt.deploy.nvflare.job import TASK
from fedquilt.deploy.protocol.channel import WaitLimits

POLL_SECONDS = 0.05  # between checks for replies
SPARE_SECONDS = 60  # FLARE's own timeout of a task is later than ours


class JobEnded(Exception):
    """Raised when FLARE stops the job."""


class FlareChannel:
    """The channel to the sites of one FLARE job."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, abort: Signal) -> None:
        self._controller, self._fl_ctx, self._abort = controller, fl_ctx, abort
        self._lock = threading.Lock()  # replies arrive on FLARE's threads

    def sites(self) -> list[str]:
        """Return the sites of this job: FLARE admits none after it has begun."""
        clients: list[Client] = self._fl_ctx.get_engine().get_clients()
        return sorted(client.name for client in clients)

    def has_left(self, site: str) -> bool:
        return self._controller.get_client_disconnect_time(site) is not None

    def ask(
        self,
        requests: Mapping[str, bytes],
        on_reply: Callable[[str, bytes], None],
        limits: WaitLimits,
    ) -> Mapping[str, str]:
        here = self.sites()
        silent = {name: "not connected" for name in requests if name not in here}
        waiting: dict[str, Task] = {}
        replied: set[str] = set()

        def on_result(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            with self._lock:
                name, result = client_task.client.name, client_task.result
                client_task.result = None  # otherwise FLARE keeps every update of the round
                if name in requests and name not in replied:
                    replied.add(name)
                    silent.update(_pass_on(on_reply, name, result))

        for name, request in requests.items():
            if name in here:
                waiting[name] = self._send(name, request, limits.seconds, on_result)
        self._wait(waiting, replied, limits, silent)
        with self._lock:
            late = [name for name in waiting if name not in replied]
            replied.update(late)  # ignore replies from now on
        for name in late:
            silent.setdefault(name, "no answer in time")
            self._controller.cancel_task(waiting[name])
        return silent

    def _send(self, name: str, request: bytes, seconds: float, on_result: Any) -> Task:
        data = Shareable()
        data[MESSAGE] = request
        task = Task(
            name=TASK,
            data=data,
            timeout=ceil(seconds) + SPARE_SECONDS,
            result_received_cb=on_result,
        )
        self._controller.send(task, self._fl_ctx, targets=[name])
        return task

    def _wait(
        self,
        waiting: Mapping[str, Task],
        replied: set[str],
        limits: WaitLimits,
        silent: dict[str, str],
    ) -> None:
        deadline = time.monotonic() + limits.seconds
        was_enough = False
        while time.monotonic() < deadline:
            if self._abort.triggered:
                raise JobEnded
            for name in waiting:
                if name not in replied and self.has_left(name):
                    silent[name] = "lost connection"
            with self._lock:
                if all(name in replied or name in silent for name in waiting):
                    return
                if not was_enough and limits.is_enough():
                    was_enough = True
                    deadline = min(deadline, time.monotonic() + limits.late_seconds)
            time.sleep(POLL_SECONDS)


def _pass_on(
    on_reply: Callable[[str, bytes], None], name: str, result: Shareable | None
) -> dict[str, str]:
    """Pass on a site's reply; if FLARE returned no message, return the reason instead."""
    code = ReturnCode.ERROR if result is None else result.get_return_code()
    message = None if result is None else result.get(MESSAGE)
    if code != ReturnCode.OK or not isinstance(message, bytes):
        return {name: f"FLARE reports {code}"}
    on_reply(name, message)
    return {}
