"""SiteExecutor: the site's FLARE component; it passes messages to a training process."""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedquilt.deploy.nvflare.workspace import kit_files
from fedquilt.deploy.site.trainer_process import Cancelled, TrainerProcess

MESSAGE = "fedquilt"  # the key of the message in FLARE's Shareable; its value is bytes


class SiteExecutor(Executor):  # type: ignore[misc]
    """Only passes bytes on: if this process died, FLARE would end the job for all sites."""

    def __init__(self) -> None:
        super().__init__()
        self._trainer: TrainerProcess | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            files = kit_files(Path(fl_ctx.get_workspace().get_root_dir()))
            self._trainer = TrainerProcess(files["kit"], files["settings"])
            self._trainer.start()
        elif event_type == EventType.END_RUN and self._trainer is not None:
            self._trainer.stop()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        request = shareable.get(MESSAGE)
        if self._trainer is None or not isinstance(request, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        try:
            message = self._trainer.ask(request, lambda: bool(abort_signal.triggered))
        except Cancelled:
            return make_reply(ReturnCode.TASK_ABORTED)
        reply = make_reply(ReturnCode.OK)
        reply[MESSAGE] = message
        return reply
