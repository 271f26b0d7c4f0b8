"""Headless Chromium over its DevTools protocol: just enough to open a page, run scripts in it, and look at it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


_LEFT = ("navigated or closed", "context was destroyed", "Cannot find context", "Cannot find default execution context")


class Navigated(Exception):
    """The page was left while it was asked."""


class Page:
    """An open page. ``faults`` are the errors that it logged or threw, its content security policy's among them."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.faults: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=20))
            if message.get("id") == self._number:
                if any(words in message.get("error", {}).get("message", "") for words in _LEFT):
                    raise Navigated
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            if message.get("method") == "Runtime.exceptionThrown":
                self.faults.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.faults.append(json.dumps(message["params"]["entry"]))

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 10.0) -> Any:
        """The expression's value once it is true."""
        end = time.monotonic() + seconds
        while not (value := self._now(script)):
            if time.monotonic() > end:
                raise AssertionError(f"{script} stayed {value!r}; the page says {self.run('document.body.innerText')}")
            time.sleep(0.05)
        return value

    def _now(self, script: str) -> Any:
        try:
            return self.run(script)
        except Navigated:
            return None

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def look(self, scheme: str, width: int, height: int) -> None:
        """Have the page ``light`` or ``dark``, in a window of this size."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@contextmanager
def browser(folder: Path, width: int = 1280, height: int = 1100) -> Iterator[Page]:
    """A page in a browser of its own, whose profile is in ``folder``; skips where there is no Chromium."""
    if BINARY is None:
        pytest.skip("Chromium is not installed")
    arguments = [
        BINARY, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={folder}",
        f"--window-size={width},{height}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        active = folder / "DevToolsActivePort"
        end = time.monotonic() + 30
        while not active.exists() or not active.read_text().strip():
            assert process.poll() is None, "Chromium ended at once"
            assert time.monotonic() < end, "Chromium did not start"
            time.sleep(0.05)
        port = active.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            target = next(entry for entry in json.load(answer) if entry["type"] == "page")
        with connect(target["webSocketDebuggerUrl"], max_size=None, open_timeout=20) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(10)
