"""Peers: each runs in a worker process of its own and is spoken to in JSON lines.

Down: ``{"op": "generate", "tokens": [...], "end": [...], "max_tokens": n, "options": {...}}``, ``{"op": "step", "rows":
n, "context": n}`` and ``{"op": "exit"}``. Up: one ``{"event": "ready"}``, then ``tokens`` (``tokens`` or ``text`` and
``count``) and one ``end`` per generate, ``step`` with ``seconds``, or ``error`` with a ``message``. A folder of peers
says in ``peers.toml`` how to start each worker and which variants it has; its README has the protocol in full.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vivace.bench.contenders import Answer, Question
from vivace.bench.host import Texts
from vivace.bench.record import Contender
from vivace.errors import UsageError, VivaceError

LINE_LIMIT = 64 << 20
START_SECONDS = 600.0
"""Within this time a worker must say that it is ready."""

Event = dict[str, Any]


class PeerFailed(VivaceError):
    """A peer could not start or broke off."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The peer {name} failed: {why}", hint="See benchmarks/peers/README.md.", code="peer")


class PeerWorker:
    """One worker process; the variants of one engine may share it. One request at a time."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.ready: Event = {}
        self.start_seconds = 0.0
        self.players = 0
        self._process: asyncio.subprocess.Process | None = None

    async def open(self) -> None:
        """Start it unless it runs, and wait until it can answer."""
        if self._process is not None:
            return
        began = time.perf_counter()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=LINE_LIMIT,
                )
            except OSError as error:
                raise PeerFailed(self.name, f"cannot start {self.command[0]}: {error.strerror}") from error
        try:
            self.ready = await asyncio.wait_for(self._receive(), START_SECONDS)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise PeerFailed(self.name, f"not ready after {START_SECONDS:.0f} s") from error
            raise
        self.start_seconds = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def ask(self, message: Mapping[str, Any]) -> AsyncIterator[Event]:
        """The events that answer a message; the last is neither ``tokens`` nor an error."""
        if self._process is None or self._process.stdin is None:
            raise PeerFailed(self.name, "it does not run")
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        while True:
            event = await self._receive()
            yield event
            if event.get("event") != "tokens":
                return

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError, ConnectionError):
            if process.stdin is not None:
                process.stdin.write(b'{"op": "exit"}\n')
                process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10.0)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "nothing"

    async def _receive(self) -> Event:
        assert self._process is not None and self._process.stdout is not None
        # A library that prints to standard output does not end the run.
        while True:
            line = await self._process.stdout.readline()
            if not line:
                raise PeerFailed(self.name, f"its process ended. It said last: {self._last_words()}")
            if not line.startswith(b"{"):
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "error":
                raise PeerFailed(self.name, str(event.get("message", "unknown")))
            if isinstance(event, dict):
                return event


@dataclass
class PeerPlayer:
    """One variant of a peer."""

    worker: PeerWorker
    card: Contender
    texts: Texts
    options: dict[str, Any] = field(default_factory=dict)
    plain: bool = False
    """Decodes token by token: the variant that single measurements take."""

    async def open(self) -> None:
        await self.worker.open()
        self.card.detail = str(self.worker.ready.get("detail", ""))
        self.card.versions = {str(k): str(v) for k, v in self.worker.ready.get("versions", {}).items()}
        self.card.start_seconds = self.worker.start_seconds
        self.worker.players += 1
        await self.answer(Question("", "", self.texts.prompt("", "Say hello."), 8))

    async def answer(self, question: Question) -> Answer:
        return await self.generate(question.tokens, question.max_tokens, self.texts.end_tokens)

    async def generate(self, tokens: list[int], max_tokens: int, end: Sequence[int] = (), **options: Any) -> Answer:
        """Answer ``tokens``; without ``end`` only the limit ends the answer. Further options reach the worker."""
        message = {
            "op": "generate",
            "tokens": tokens,
            "end": list(end),
            "max_tokens": max_tokens,
            "options": {**self.options, **options},
        }
        answer = Answer(prompt_tokens=len(tokens))
        ids: list[int] = []
        pieces: list[str] = []
        began = time.perf_counter()
        async for event in self.worker.ask(message):
            if event.get("event") == "tokens":
                answer.arrivals.append(time.perf_counter() - began)
                new = event.get("tokens", [])
                ids += new
                pieces.append(event.get("text", ""))
                count = len(new) or int(event.get("count", 0))
                answer.first_tokens = answer.first_tokens or count
                answer.output_tokens += count
            else:
                answer.ending = str(event.get("reason", "failed"))
                answer.output_tokens = int(event.get("output_tokens", answer.output_tokens))
                answer.drafted, answer.accepted = event.get("drafted"), event.get("accepted")
                answer.cached_tokens = event.get("cached_tokens")
        answer.text = self.texts.decode(ids) if ids else "".join(pieces)
        return answer

    async def close(self) -> None:
        self.worker.players -= 1
        if self.worker.players <= 0:
            await self.worker.close()


def load_peers(
    folder: Path, places: Mapping[str, str], texts: Texts, only: Sequence[str], logs: Path
) -> list[PeerPlayer]:
    """The variants that ``peers.toml`` in ``folder`` names and whose ``needs`` are all among ``places``.

    ``places`` fills the ``{words}`` in the commands: ``python``, ``model_file``, ``data``, ... ``only`` picks engines
    by the beginning of their name; empty picks all. Raises :class:`UsageError` for a file that cannot be used.
    """
    path = folder / "peers.toml"
    words = {"here": str(folder), **places}
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["peer"]
        players: list[PeerPlayer] = []
        for entry in entries:
            name = entry["name"]
            wanted = not only or any(name.casefold().startswith(choice.casefold()) for choice in only)
            if not wanted or any(not places.get(need) for need in entry.get("needs", [])):
                continue
            command = [part.format(**words) for part in entry["command"]]
            log = logs / f"{''.join(c if c.isalnum() else '-' for c in name)}.log"
            worker = PeerWorker(name, command, log)
            for variant in entry.get("variant", [{"name": ""}]):
                card = Contender(name=f"{name} {variant['name']}".strip(), engine=entry.get("engine", name))
                players.append(PeerPlayer(worker, card, texts, variant.get("options", {}), variant.get("plain", False)))
        return players
    except OSError as error:
        raise UsageError(f"There are no peers in {folder}: {error.strerror}", param="peers") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError(f"{path} cannot be used: {error!r}", param="peers") from error
