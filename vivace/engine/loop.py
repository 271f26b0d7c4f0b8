"""The engine's main loop, and the thread that reads messages for it.

The loop is: take messages in, plan a pass, run it, settle its results, send them. One thread owns the model and the KV
memory; the other only reads frames, puts them in the inbox and raises the abort flag, so that an abort is seen between
two layers of the running pass.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from vivace.engine import messages as m
from vivace.engine.constraint import Grammars
from vivace.engine.costs import CostCurve
from vivace.engine.kv import BlockTable
from vivace.engine.memory import Memory
from vivace.engine.runner import AbortFlag, Rows, Runner
from vivace.engine.scheduler import Limits, Planned, Scheduler
from vivace.engine.sequence import Sequence, TokenBytes


class Engine:
    """Serves one model until :class:`vivace.engine.messages.Shutdown` or until ``receive`` ends."""

    def __init__(
        self,
        runner: Runner,
        vocab: int,
        window: int,
        limits: Limits,
        cost: CostCurve,
        token_bytes: TokenBytes,
        send: Callable[[m.Up], None],
        grammars: Grammars | None = None,
    ) -> None:
        self.runner = runner
        self.vocab = vocab
        self.window = window
        self.token_bytes = token_bytes
        self.send = send
        self.grammars = grammars
        self.scheduler = Scheduler(Memory(BlockTable(runner.kv_blocks), runner.copy_block), limits, cost)
        self.abort = AbortFlag()
        self.steps = 0
        self._inbox: deque[m.Down] = deque()
        self._arrived = threading.Condition()
        self._running_pass: list[Planned] = []

    def deliver(self, message: m.Down) -> None:
        """Called by the reading thread for each message."""
        if isinstance(message, m.Abort):
            self._mark_aborted(message.id)
        with self._arrived:
            self._inbox.append(message)
            self._arrived.notify()

    def run(self) -> None:
        while self._take_messages():
            progress = self.scheduler.sweep()
            planned = self.scheduler.plan()
            if planned:
                results = self._run_pass(planned)
                if results is not None:
                    progress += self.scheduler.settle(planned, results)
            if progress:
                self.send(m.Step(progress))

    def _run_pass(self, planned: list[Planned]) -> list[Rows] | None:
        spans = [part.span for part in planned]
        self._running_pass = planned
        started = time.perf_counter()
        results = self.runner.forward(spans, self.abort)
        seconds = time.perf_counter() - started
        self._running_pass = []
        self.abort.clear()
        self.steps += results is not None
        if results is not None and all(span.outputs == len(span.tokens) for span in spans):
            rows, keys = sum(span.outputs for span in spans), sum(span.outputs * span.start for span in spans)
            self.scheduler.cost.learn(rows, seconds, keys)
        return results

    def _take_messages(self) -> bool:
        """Handle what has arrived; sleep while there is nothing to do. False when it is time to end."""
        with self._arrived:
            while not self._inbox and self.scheduler.idle:
                if not self._arrived.wait(0.05 if self.scheduler.waiting else None):
                    break  # Somebody's time may be over.
            taken = list(self._inbox)
            self._inbox.clear()
        for message in taken:
            match message:
                case m.Start():
                    sequence = Sequence(message, frozenset(message.end), self.window, self.token_bytes)
                    refused = self._unknown_token(sequence) or self._constrain(sequence) or self.scheduler.add(sequence)
                    if refused is not None:
                        self.send(m.Step([m.Progress(message.id, [], refused)]))
                case m.Abort():
                    found = self.scheduler.find(message.id)
                    if found is not None:
                        found.aborted = True
                case m.Inspect():
                    self.send(self._report())
                case m.Shutdown():
                    return False
        return True

    def _unknown_token(self, sequence: Sequence) -> m.Finish | None:
        """The refusal of ids that the model has no row for: computing with one would read foreign memory."""
        for ids in (sequence.request.tokens, sequence.request.reference):
            if ids and not (min(ids) >= 0 and max(ids) < self.vocab):
                return sequence.finish("error", f"A token id is outside the vocabulary of {self.vocab}.")
        return None

    def _constrain(self, sequence: Sequence) -> m.Finish | None:
        """Have a sequence's grammar compiled, if it has one; it waits for that."""
        if sequence.request.grammar is None or sequence.request.prefill_only:
            return None
        if self.grammars is None:
            return sequence.finish("error", "This engine was opened without grammars.")
        sequence.constraint = self.grammars.constrain(sequence.request.grammar, self._wake)
        return None

    def _wake(self) -> None:
        with self._arrived:
            self._arrived.notify()

    def _mark_aborted(self, request_id: int) -> None:
        """From the reading thread: give up the running pass if most of its rows are for the aborted request."""
        running = self._running_pass
        rows = sum(len(part.span.tokens) for part in running)
        mine = sum(len(part.span.tokens) for part in running if part.sequence.request.id == request_id)
        if 2 * mine >= rows > 0:
            self.abort.set()

    def _report(self) -> m.Report:
        blocks = self.scheduler.memory.table
        blocks.check()
        return m.Report(
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            kv_blocks=blocks.count,
            kv_blocks_held=blocks.held,
            kv_blocks_cached=blocks.idle,
            steps=self.steps,
            resident_bytes=_resident_bytes(),
        )


class Line:
    """Frames over one socket, for the engine's side."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb", buffering=1 << 16)
        self._writing = threading.Lock()

    def send(self, message: m.Up) -> None:
        with self._writing:
            self.connection.sendall(m.frame(message))

    def receive(self) -> m.Down | None:
        """The next message, or None when the other side is gone."""
        try:
            header = self._file.read(m.HEADER.size)
            if len(header) < m.HEADER.size:
                return None
            (length,) = m.HEADER.unpack(header)
            body = self._file.read(length)
        except ConnectionError:  # It died with something of ours unread.
            return None
        return m.decode_down(body) if len(body) == length else None

    def feed(self, engine: Engine) -> None:
        """Hand every message to the engine. When the other side is gone the process ends: nobody wants its work."""
        while (message := self.receive()) is not None:
            engine.deliver(message)
        os._exit(0)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
