"""The engine process: ``python -m vivace.engine.worker FD`` with a connected socket as its first argument."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading

from vivace.engine import messages as m
from vivace.engine.constraint import Grammars
from vivace.engine.kv import BLOCK
from vivace.engine.load import load_runner, measure_costs, spelling
from vivace.engine.loop import Engine, Line
from vivace.engine.scheduler import Limits
from vivace.errors import VivaceError


def main() -> None:
    # Ctrl-C reaches the whole process group; who started the engine decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    with contextlib.suppress(ConnectionError):  # Whoever started the engine is gone; nobody is left to tell.
        serve(line)


def serve(line: Line) -> None:
    """Load the model that the first message names and answer until the line ends."""
    opened = line.receive()
    if not isinstance(opened, m.Open):
        return
    try:
        engine = open_engine(opened.config, line)
    except VivaceError as error:
        line.send(m.Fatal(error.message, error.hint, error.code))
        return
    except MemoryError:
        line.send(m.Fatal("There is not enough memory for this model.", "Close something, or take a smaller model."))
        return
    threading.Thread(target=line.feed, args=(engine,), daemon=True).start()
    engine.run()


def open_engine(config: m.EngineConfig, line: Line) -> Engine:
    """Load the model and say :class:`Ready`."""
    limits = Limits()
    runner, spec = load_runner(config, limits, lambda stage, share: line.send(m.Loading(stage, share)))
    kv_tokens = runner.kv_blocks * BLOCK
    window = min(config.window or spec.window, spec.window, kv_tokens)
    spell, costs = spelling(config), measure_costs(runner, limits, min(spec.window, kv_tokens))
    grammars = Grammars(spell, spec.vocab)
    engine = Engine(
        runner, spec.vocab, window, limits, costs, lambda token: spell().token_bytes(token), line.send, grammars
    )
    line.send(m.Ready(window, spec.vocab, kv_tokens, runner.detail))
    return engine


if __name__ == "__main__":
    main()
