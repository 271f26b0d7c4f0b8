"""An engine run to the end in the caller's thread, without a process around it."""

from __future__ import annotations

from tests.engine.tinymodels import VOCAB
from vivace.engine import messages as m
from vivace.engine.costs import DEFAULT_COSTS, CostCurve
from vivace.engine.loop import Engine
from vivace.engine.runner import Runner
from vivace.engine.scheduler import Limits


def answer(
    runner: Runner,
    requests: list[m.Start],
    window: int,
    limits: Limits = Limits(),  # noqa: B008
    vocab: int = VOCAB,
) -> dict[int, tuple[list[int], m.Finish]]:
    """Tokens and end of every request by id, all of them in the engine at once, its KV memory empty before."""
    tokens: dict[int, list[int]] = {request.id: [] for request in requests}
    ends: dict[int, m.Finish] = {}

    def take(message: m.Up) -> None:
        if isinstance(message, m.Report):
            assert message.kv_blocks_held == 0  # The report has also checked the block table's books.
            engine.deliver(m.Shutdown())
            return
        assert isinstance(message, m.Step)
        for progress in message.progress:
            tokens[progress.id] += progress.tokens
            if progress.finish is not None:
                ends[progress.id] = progress.finish
        if len(ends) == len(requests):
            engine.deliver(m.Inspect())

    engine = Engine(runner, vocab, window, limits, CostCurve(DEFAULT_COSTS), lambda token: b"", take)
    for request in requests:
        engine.deliver(request)
    engine.run()
    return {number: (tokens[number], ends[number]) for number in tokens}
