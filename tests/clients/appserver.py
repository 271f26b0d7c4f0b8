"""Codex's app-server: threads of several turns, driven by JSON-RPC over its standard input and output."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
from typing import Any

from tests.clients.codex import Codex
from tests.clients.harness import Json

PATIENCE = 30.0
"""Seconds that an answer or a notification is waited for."""


class AppServer:
    """One app-server process with one thread of turns."""

    def __init__(self, codex: Codex) -> None:
        self._process = subprocess.Popen(
            [codex.command, "app-server"], cwd=codex.work, env=codex.env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._ids = itertools.count(1)
        self._answers: queue.Queue[Json] = queue.Queue()
        self._told: queue.Queue[Json] = queue.Queue()
        self.seen: list[Json] = []
        """Notifications that were waited through."""
        threading.Thread(target=self._read, daemon=True).start()
        self.ask("initialize", clientInfo={"name": "tests", "title": "tests", "version": "1"})
        self._send({"method": "initialized"})
        thread = {"cwd": str(codex.work), "approvalPolicy": "never", "sandbox": "workspace-write"}
        self.thread: str = self.ask("thread/start", **thread)["thread"]["id"]

    def __enter__(self) -> AppServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, **params: Any) -> Json:
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        while (answer := self._answers.get(timeout=PATIENCE))["id"] != number:
            pass
        assert "result" in answer, answer
        found: Json = answer["result"]
        return found

    def begin(self, text: str) -> str:
        """Start a user turn; gives its id."""
        given = [{"type": "text", "text": text}]
        turn: str = self.ask("turn/start", threadId=self.thread, input=given)["turn"]["id"]
        return turn

    def turn(self, text: str) -> Json:
        """A user turn from its beginning to its end; gives the turn as Codex tells of it."""
        self.begin(text)
        found: Json = self.wait("turn/completed")["turn"]
        return found

    def wait(self, method: str) -> Json:
        """The params of the next notification of this kind."""
        while True:
            told = self._told.get(timeout=PATIENCE)
            self.seen.append(told)
            if told["method"] == method:
                found: Json = told["params"]
                return found

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            (self._answers if "id" in message and "method" not in message else self._told).put(message)
