"""The server under test as a process of its own, and the clients from npm that are run against it.

Clients get a home of their own and a proxy that refuses everything but this machine: a client that needed the internet
would fail here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = Path(os.environ.get("CLIENTS_DIR") or ROOT / "build" / "clients")

Rule = Mapping[str, Any]
Json = dict[str, Any]


def client(name: str) -> str:
    """The command of a client; skips the test with the reason where it is absent."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    path = CLIENTS / "node_modules" / ".bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not in {CLIENTS}: run tests/clients/setup.sh")
    return str(path)


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a client's process sees: nothing of this user's settings, and no way out."""
    # A folder for temporary files that the rest of the home is not under: Codex keeps no helpers beneath it, and its
    # sandbox needs them.
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    nowhere = "http://127.0.0.1:9"
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept, "HOME": str(home), "TMPDIR": str(home / "tmp"),
        "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".share"),
        "XDG_STATE_HOME": str(home / ".state"), "XDG_CACHE_HOME": str(home / ".cache"), "SHELL": "/bin/sh",
        "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "ALL_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost",
        **more,
    }  # fmt: skip


def until(true: Callable[[], Any], seconds: float = 10.0, what: str = "it") -> Any:
    """Wait until ``true`` gives something, and give that."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.02)
    return found


class Server:
    """A serving process, started at once. ``rules`` are the paced backend's script (docs/paced.md).

    Without ``recorded`` it is the command that users run, and nothing is known of its requests.
    """

    def __init__(
        self,
        folder: Path,
        rules: Sequence[Rule] = (),
        options: Iterable[str] = ("--backend", "paced"),
        settings: Mapping[str, str] | None = None,
        recorded: bool = True,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = {"VIVACE_STATE_DIR": str(folder / "state"), **(settings or {})}
        self._options = list(options)
        (folder / "script.json").write_text(json.dumps({"rules": list(rules)}), encoding="utf-8")
        if "paced" in self._options:
            self._options += ["--script", str(folder / "script.json")]
        self._record = folder / "record.jsonl"
        server = ["tests.clients.server", "--record", str(self._record)] if recorded else ["vivace"]
        self._command = [sys.executable, "-m", *server, "serve"]
        self._log = folder / "server.log"
        self._process: subprocess.Popen[str] | None = None
        self.root = ""
        """Its address, such as ``http://127.0.0.1:8000``; the same after a restart."""
        self.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> None:
        port = self.root.rpartition(":")[2] or "0"
        before = len(self.log)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", port, *self._options], cwd=ROOT, text=True,
                env={**os.environ, **self._settings}, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        process = self._process

        def printed() -> bool:
            assert process.poll() is None, f"the server did not start:\n{self.log}"
            return "output_text)" in self.log[before:]

        until(printed, 60, "the server's start")
        self.root = re.findall(r"^vivace serves .* at (http://\S+)$", self.log, re.MULTILINE)[-1]

    def kill(self) -> None:
        """As ``kill -9``."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Tell it to end, and see that it ends well."""
        assert self._end(signal.SIGTERM) in (None, 0), self.log

    def _end(self, how: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(how)
        try:
            return process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    def settings(self, title: str) -> str:
        """What it printed for one client: everything between its title and the next."""
        found = re.search(rf"^# {title}.*?\n\n(.*?)(?=^# (?:opencode|Claude|OpenAI)|\Z)", self.log, re.M | re.S)
        assert found is not None, self.log
        return found[1]

    # What was written down, oldest first.

    def lines(self, kind: str) -> list[Json]:
        if not self._record.exists():
            return []
        whole = self._record.read_bytes().rpartition(b"\n")[0]
        return [line for line in map(json.loads, whole.splitlines()) if line["kind"] == kind]

    def requests(self, way: str | None = None) -> list[Json]:
        """Requests as they came, with what is known of their way added under ``_``."""
        return [
            {**line["request"], "_": {key: line[key] for key in ("way", "line", "caller", "at")}}
            for line in self.lines("request")
            if way in (None, line["way"])
        ]

    def events(self, kind: str | None = None) -> list[Json]:
        """Events as they went out, with their time under ``_at``."""
        found = [{**line["event"], "_at": line["at"]} for line in self.lines("event")]
        return [event for event in found if kind in (None, event["type"])]

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(f"{self.root}{path}", trust_env=False)

    def running(self) -> list[Json]:
        """The responses that it is making, as its console shows them."""
        found: list[Json] = self.get("/console/overview").json()["running"]
        return found

    def answered(self, path: str, method: str) -> dict[int, int]:
        """How often a path was answered with which status, from the server's own metrics."""
        text = self.get("/metrics").text
        rows = re.findall(r"^vivace_http_requests_total\{(.*)\} (\S+)$", text, re.MULTILINE)
        labels = [(dict(re.findall(r'(\w+)="([^"]*)"', row)), float(count)) for row, count in rows]
        return {
            int(row["status"]): int(count) for row, count in labels if row["path"] == path and row["method"] == method
        }


class Ran:
    """A client's process that has ended: its output, as text and as the JSON lines in it."""

    def __init__(self, code: int, out: str, err: str, seconds: float) -> None:
        self.code = code
        self.out = out
        self.err = err
        self.seconds = seconds

    @property
    def json(self) -> list[Json]:
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def __str__(self) -> str:
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out}\n{self.err}"


class Running:
    """A client's process that runs."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            list(command), cwd=folder, env=dict(env), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def wait(self, seconds: float = 60.0) -> Ran:
        """Its output; a client that does not end is killed with all that it started, and the test fails."""
        try:
            out, err = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            out, err = self._process.communicate()
            pytest.fail(f"the client did not end in {seconds:g} s\n{out}\n{err}")
        return Ran(self._process.returncode, out, err, time.monotonic() - self._began)


def texts(request: Json, role: str | None = None) -> list[str]:
    """The texts of a request's messages."""
    found = []
    for item in request.get("input", []):
        if item.get("type", "message") == "message" and role in (None, item["role"]):
            content = item["content"]
            found.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
    return found


def kinds(request: Json) -> list[str]:
    """The types of a request's input items."""
    return [item.get("type", "message") for item in request.get("input", [])]
