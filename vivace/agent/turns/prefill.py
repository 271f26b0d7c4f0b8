"""Files are read by the model while the user still types: the answer then begins at once."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from vivace.agent.approvals.secrets import is_secret
from vivace.agent.edit_dialects.question import HunkAsk
from vivace.agent.plan import question
from vivace.agent.repomap.files import project_files
from vivace.agent.turns.desk import Desk
from vivace.agent.turns.named import named_files
from vivace.agent.workspace import Workspace
from vivace.errors import VivaceError
from vivace.protocol.contracts import Principal

PAUSE = 0.15
"""Seconds without a key after which what was typed is looked at."""
MOST = 3
"""Files that are prefilled for one message."""


class Prefills:
    """One file at a time, each text once per model. Nothing that goes wrong here matters to anybody."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.done: dict[tuple[str, str], str] = {}
        """(model, path) -> the hash of the text that was prefilled."""
        self._wanted: list[str] = []
        self._model = ""
        self._typed: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, paths: list[str], model: str) -> None:
        """Prefill these next, instead of what was wanted before."""
        self._wanted, self._model = paths[:MOST], model
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    def typing(self, text: str, model: str) -> None:
        if self._typed is not None:
            self._typed.cancel()
        self._typed = asyncio.get_running_loop().call_later(PAUSE, self._look, text, model)

    async def settled(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        if self._typed is not None:
            self._typed.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _look(self, text: str, model: str) -> None:
        if "." in text or "/" in text:
            self.want([text], f"\0{model}")  # the files are looked up in the task, off the loop

    async def _work(self) -> None:
        while self._wanted:
            paths, model = self._wanted, self._model
            self._wanted = []
            with contextlib.suppress(VivaceError):
                if model.startswith("\0"):
                    model = model[1:]
                    files = await asyncio.to_thread(project_files, self.desk.root)
                    paths = named_files(self.desk.root, paths[0], files)[:MOST]
                for path in paths:
                    await self._one(path, model)

    async def _one(self, path: str, model: str) -> None:
        source = Workspace(self.desk.root).read(path)
        if is_secret(source.name) or self.done.get((model, source.name)) == source.sha256:
            return
        card = await self.desk.card(model)
        ask = question(card, source, "", rules=self.desk.rules_of(card, source))
        base = ask.request(card) if isinstance(ask, HunkAsk) else ask.request(card.name)
        if await self.desk.service.input_tokens(base) * 2 > card.context_window:
            return
        request = msgspec.structs.replace(base, generate=False, store=False, prediction=None, text=None)
        generation = self.desk.service.start(request, Principal())
        try:
            async for _ in generation:
                pass
        except BaseException:
            await generation.stop("cancelled")
            raise
        self.done[model, source.name] = source.sha256
