"""The worker's side of the line protocol: JSON objects, one a line, on standard input and output. No dependencies."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

Generate = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]


def serve(open_engine: Callable[[], tuple[dict[str, Any], dict[str, Generate]]]) -> None:
    """Open the engine, say ready, then answer messages until ``exit`` or the end of input.

    ``open_engine`` gives the ready event's fields and, by ``op``, what answers a message with events. What libraries
    print goes to standard error.
    """
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def send(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    try:
        ready, handlers = open_engine()
        send({"event": "ready", "ops": sorted(handlers), **ready})
        while True:
            message = lines.get()
            if message["op"] == "exit":
                break
            for event in handlers[message["op"]](message):
                send(event)
    except Exception as error:
        traceback.print_exc()
        send({"event": "error", "message": f"{type(error).__name__}: {error}"})
    # Engines keep threads that would hold up an ordinary exit.
    sys.stderr.flush()
    os._exit(0)


def _read(lines: queue.SimpleQueue[dict[str, Any]]) -> None:
    """When whoever asks is gone, so is the worker, in the middle of an answer too."""
    for line in sys.stdin:
        lines.put(json.loads(line))
    os._exit(0)
