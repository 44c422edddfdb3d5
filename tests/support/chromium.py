"""Chromium without a window, over its DevTools pipe: no package is needed, only the browser."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium here; make test-browser installs Debian's package"
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--window-size=1280,900"),
)


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page, and all that it logged, threw and asked for."""

    commands: int
    replies: int
    number: int = 0
    session: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _rest: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events on the way are kept."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            received = self._next()
            if received.get("id") == self.number:
                assert "error" not in received, received
                result: dict[str, Any] = received["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self.replies, 2**16)
            assert piece, "Chromium has ended"
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, page: Path) -> None:
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def run(self, script: str) -> Any:
        """Return what a script evaluates to; what it throws fails the test."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        text = {"Enter": "\r", "Space": " "}.get(key, "")
        name = " " if key == "Space" else key
        code = {"Enter": 13, "Space": 32, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
            )

    @property
    def requests(self) -> list[str]:
        kind = "Network.requestWillBeSent"
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == kind]

    @property
    def complaints(self) -> list[dict[str, Any]]:
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """Start the browser with an empty profile and yield its one tab."""
    path = find_chromium()
    assert path is not None, MISSING
    from_us, commands = os.pipe()
    replies, from_them = os.pipe()

    def connect() -> None:  # the pipe is on descriptors 3 and 4, by definition
        low, high = os.dup(from_us), os.dup(from_them)
        os.dup2(low, 3)
        os.dup2(high, 4)

    process = subprocess.Popen(
        [path, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=connect,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(from_them)
    try:
        tab = Tab(commands, replies)
        target = tab.call("Target.createTarget", url="about:blank")["targetId"]
        found = tab.call("Target.attachToTarget", targetId=target, flatten=True)
        tab.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.events.clear()
        yield tab
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(replies)
