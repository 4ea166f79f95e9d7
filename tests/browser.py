"""A headless Chromium, driven by its DevTools protocol over a pipe, without port or library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE, until

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


class Browser:
    """One page of a browser; ``log``: its console output and errors."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        from_us, self._to = os.pipe()
        self._from, to_us = os.pipe()
        self._buffer, self._number = b"", 0
        self.log: list[str] = []
        self.requests: list[str] = []
        self._session: str | None = None

        def descriptors() -> None:
            # --remote-debugging-pipe uses descriptors 3 and 4; first move ours out of the way
            read, write = os.dup(from_us), os.dup(to_us)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
                "--disable-component-update", "--remote-debugging-pipe",
                f"--user-data-dir={folder}", "about:blank",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=descriptors, close_fds=False,
        )  # fmt: skip
        os.close(from_us)
        os.close(to_us)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply["error"]
                found: dict[str, Any] = reply["result"]
                return found
            self._note(reply)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        line, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.log.append(json.dumps(given["exceptionDetails"]))
            case "Log.entryAdded" if given["entry"]["level"] in ("warning", "error"):
                self.log.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])

    def open(self, url: str) -> None:
        """Go to an address; returns once the page and its scripts are loaded."""
        found = self.call("Page.navigate", url=url)
        assert "errorText" not in found, found["errorText"]
        here = "location.href !== 'about:blank' && document.readyState === 'complete'"
        self.until(here)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, once it is fulfilled."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Return once an expression holds in the page."""
        until(lambda: self.evaluate(script), f"{script}; the browser said {self.log}")

    def look(self, width: int, *, dark: bool, height: int = 900) -> None:
        """Show the page at this width, in light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, *, whole: bool = True) -> bytes:
        """The whole page, or what is in view, as PNG."""
        # a changed size or colour scheme is drawn only after the first picture
        for _ in range(2):
            found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
            self.evaluate(
                "new Promise(d => setTimeout(() => requestAnimationFrame(() => d(1)), 500))"
            )
        path.write_bytes(base64.b64decode(found["data"]))
        return path.read_bytes()

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes[key], text="\r" if key == "Enter" else "",
            )  # fmt: skip

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser, which is ended afterwards."""
    made = Browser(folder)
    try:
        yield made
    finally:
        made.close()
