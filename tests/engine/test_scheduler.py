"""The scheduler on a runner that keeps its books in KV memory: whatever is batched, shared, evicted or given up,
every request gets exactly the tokens that it would get alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.paperrunner import VOCAB, PaperRunner, continuation
from vivace.engine.costs import DEFAULT_COSTS, CostCurve
from vivace.engine.kv import BLOCK, BlockTable
from vivace.engine.memory import Memory
from vivace.engine.messages import Finish, Progress, Sampling, Start
from vivace.engine.runner import AbortFlag
from vivace.engine.scheduler import Limits, Scheduler
from vivace.engine.sequence import Sequence


class Bench:
    """Scheduler and runner, stepped by hand."""

    def __init__(self, blocks: int = 64, limits: Limits = Limits(), window: int = 1000) -> None:  # noqa: B008
        self.runner = PaperRunner(blocks)
        memory = Memory(BlockTable(blocks), self.runner.copy_block)
        self.scheduler = Scheduler(memory, limits, CostCurve(DEFAULT_COSTS))
        self.window = min(window, blocks * BLOCK)
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, Finish] = {}

    def add(self, request: Start) -> None:
        self.tokens[request.id] = []
        sequence = Sequence(request, frozenset(request.end), self.window, lambda token: bytes([token]))
        refused = self.scheduler.add(sequence)
        if refused is not None:
            self.finished[request.id] = refused

    def step(self) -> int:
        progress = self.scheduler.sweep()
        planned = self.planned = self.scheduler.plan()
        if planned:
            results = self.runner.forward([part.span for part in planned], AbortFlag())
            assert results is not None
            progress += self.scheduler.settle(planned, results)
        self.take(progress)
        self.scheduler.memory.table.check()
        return len(planned)

    def take(self, progress: list[Progress]) -> None:
        for item in progress:
            self.tokens[item.id] += item.tokens
            if item.finish is not None:
                assert item.id not in self.finished
                self.finished[item.id] = item.finish

    def run(self, passes: int = 3000) -> None:
        while self.scheduler.running or self.scheduler.waiting:
            self.step()
            passes -= 1
            assert passes > 0, "no end in sight"
        assert self.scheduler.memory.table.held == 0


def alone(request: Start) -> list[int]:
    """The tokens of a request that has the engine for itself and no draft."""
    bench = Bench(200)
    bench.add(msgspec.structs.replace(request, draft=False))
    bench.run()
    return bench.tokens[request.id]


prompts = st.lists(st.integers(0, 5), min_size=1, max_size=150)
references = st.lists(st.integers(0, VOCAB - 1), max_size=80)


@st.composite
def requests(draw: st.DrawFn) -> list[Start]:
    """Requests whose prompts often share beginnings, with references that are true, broken or foreign."""
    base = draw(prompts)
    made: list[Start] = []
    for number in range(draw(st.integers(1, 6))):
        if made and draw(st.booleans()):
            twin = draw(st.sampled_from(made))
            sampling = Sampling(temperature=draw(st.sampled_from([0.0, 0.9])), seed=number)
            limit = draw(st.integers(1, 60))
            made.append(msgspec.structs.replace(twin, id=number, sampling=sampling, max_tokens=limit))
            continue
        prompt = base[: draw(st.integers(0, len(base)))] + draw(st.lists(st.integers(0, 5), min_size=1, max_size=40))
        length = draw(st.integers(1, 60))
        truth = continuation(prompt, length)
        cut, drop = draw(st.integers(0, length)), draw(st.integers(0, 5))
        reference = draw(st.sampled_from(["true", "edited", "foreign"]))
        tokens = {
            "true": truth,
            "edited": truth[:cut] + draw(st.lists(st.integers(0, 9), max_size=4)) + truth[cut + drop :],
            "foreign": draw(references),
        }[reference]
        made.append(
            Start(id=number, tokens=prompt, reference=tokens, max_tokens=length, priority=draw(st.integers(0, 2)))
        )
    return made


@settings(max_examples=150, deadline=None)
@given(requests(), st.integers(8, 40), st.integers(1, 64), st.integers(0, 40))
def test_every_request_gets_what_it_would_get_alone(wanted: list[Start], blocks: int, rows: int, draft: int) -> None:
    bench = Bench(blocks, Limits(slice_alone=rows, slice_beside=rows, draft=draft, running=4))
    for number, request in enumerate(wanted):
        bench.add(request)
        for _ in range(number):
            bench.step()
    bench.run()
    assert max(bench.runner.widths, default=0) <= bench.scheduler.limits.most_rows
    for request in wanted:
        finish = bench.finished[request.id]
        if finish.reason == "error":
            assert -(-(len(request.tokens) + 1) // BLOCK) > blocks or len(request.tokens) >= bench.window
            continue
        truth = alone(request) if request.sampling.temperature else continuation(request.tokens, request.max_tokens)
        assert bench.tokens[request.id] == truth[: len(bench.tokens[request.id])]
        assert finish.reason in ("length", "window")
        if finish.reason == "length":
            assert bench.tokens[request.id] == truth
        assert finish.output_tokens == len(bench.tokens[request.id])
        assert finish.accepted <= finish.drafted


def test_a_true_reference_is_accepted_whole_and_in_few_passes() -> None:
    prompt = list(range(10))
    truth = continuation(prompt, 120)
    bench = Bench()
    bench.add(Start(id=1, tokens=prompt, reference=truth, max_tokens=120))
    bench.run()
    assert bench.tokens[1] == truth
    # The first pass has the prompt and a draft; the last token of each pass is the model's own.
    assert len(bench.runner.widths) <= 3 and bench.finished[1].accepted >= 117


def test_a_follow_up_computes_only_what_is_new() -> None:
    prompt = [n % 7 for n in range(300)]
    bench = Bench()
    bench.add(Start(id=1, tokens=prompt, max_tokens=50))
    bench.run()
    bench.runner.widths.clear()
    bench.add(Start(id=2, tokens=prompt + bench.tokens[1] + [3, 3, 3], max_tokens=1))
    bench.run()
    assert bench.finished[2].cached_tokens >= 320
    assert sum(bench.runner.widths) <= 3 + 50 + 300 - 320 + BLOCK


def test_equal_prompts_that_arrive_together_are_computed_once() -> None:
    prompt = [n % 7 for n in range(400)]
    bench = Bench(limits=Limits(slice_alone=100, slice_beside=100))
    for number in range(4):
        bench.add(Start(id=number, tokens=prompt, max_tokens=3))
    bench.run()
    assert sum(bench.runner.widths) < 400 + 4 * (BLOCK + 3)
    assert all(bench.tokens[number] == bench.tokens[0] for number in range(4))


def test_a_long_prompt_holds_a_decoding_neighbour_up_by_one_slice() -> None:
    bench = Bench(limits=Limits(slice_alone=64, slice_beside=16))
    bench.add(Start(id=1, tokens=[1, 2, 3], max_tokens=30))
    bench.step()
    bench.add(Start(id=2, tokens=list(range(40)) * 10, max_tokens=1))
    while 1 not in bench.finished:
        before = len(bench.tokens[1])
        bench.step()
        assert len(bench.tokens[1]) > before
        assert bench.runner.widths[-1] <= 17


def test_higher_priority_is_prefilled_first() -> None:
    bench = Bench(limits=Limits(slice_alone=32, slice_beside=32))
    bench.add(Start(id=1, tokens=[1] * 200, max_tokens=1))
    bench.step()
    bench.add(Start(id=2, tokens=[2] * 60, max_tokens=1, priority=1))
    bench.run()
    assert list(bench.finished) == [2, 1]


def test_abort_frees_everything_at_once() -> None:
    bench = Bench()
    bench.add(Start(id=1, tokens=[5] * 100))
    bench.step()
    sequence = bench.scheduler.find(1)
    assert sequence is not None
    sequence.aborted = True
    bench.step()
    assert bench.finished[1].reason == "aborted" and bench.scheduler.memory.table.held == 0


def test_end_tokens_stop_texts_and_limits_end_an_answer() -> None:
    prompt = [1, 2, 3]
    truth = continuation(prompt, 40)
    end = truth[7]
    bench = Bench()
    bench.add(Start(id=1, tokens=prompt, end=[end], reference=truth))
    bench.add(Start(id=2, tokens=prompt, stop=[bytes(truth[10:13])], reference=truth))
    bench.add(Start(id=3, tokens=prompt, max_tokens=9, reference=truth))
    bench.add(Start(id=4, tokens=prompt, max_seconds=1e-9))
    bench.run()
    assert bench.tokens[1] == truth[: truth.index(end) + 1] and bench.finished[1].reason == "stop"
    text = bytes(bench.tokens[2])
    assert bench.finished[2].reason == "stop"
    assert text[: len(text) - bench.finished[2].trim] == bytes(truth)[: bytes(truth).index(bytes(truth[10:13]))]
    assert bench.tokens[3] == truth[:9] and bench.finished[3].reason == "length"
    assert bench.finished[4].reason == "time"


def test_sampling_gives_the_same_tokens_with_and_without_a_draft() -> None:
    prompt = [1, 2, 3]
    for seed in range(20):
        sampling = Sampling(temperature=1.5, seed=seed)
        bench = Bench()
        bench.add(Start(id=1, tokens=prompt, sampling=sampling, max_tokens=40))
        bench.run()
        bench.add(Start(id=2, tokens=prompt, sampling=sampling, max_tokens=40, reference=bench.tokens[1]))
        bench.add(Start(id=3, tokens=prompt, sampling=sampling, max_tokens=40, reference=continuation(prompt, 40)))
        bench.run()
        assert bench.tokens[1] == bench.tokens[2] == bench.tokens[3]
        assert bench.finished[2].accepted == 39


def test_a_window_that_is_full_ends_the_answer() -> None:
    bench = Bench(window=64)
    bench.add(Start(id=1, tokens=[1] * 60))
    bench.add(Start(id=2, tokens=[1] * 64))
    bench.run()
    assert bench.finished[1].reason == "window" and len(bench.tokens[1]) == 4
    assert bench.finished[2].reason == "error" and "64" in bench.finished[2].message


def test_candidates_of_one_prompt_share_rows_until_they_differ() -> None:
    prompt = [n % 7 for n in range(100)]
    truth = continuation(prompt, 60)
    wanted = [
        Start(
            id=number,
            tokens=prompt,
            reference=truth,
            max_tokens=60,
            sampling=Sampling(temperature=0.35 * number, seed=number),
        )
        for number in range(4)
    ]
    bench = Bench(limits=Limits(slice_alone=64, slice_beside=64))
    for request in wanted:
        bench.add(request)
    bench.run()
    texts = [tuple(bench.tokens[request.id]) for request in wanted]
    assert texts == [tuple(alone(request)) for request in wanted]
    assert len(set(texts)) > 1, "they must differ somewhere, or parting is not tested"
    apart = Bench(limits=Limits(slice_alone=64, slice_beside=64))
    for request in wanted:
        apart.add(msgspec.structs.replace(request, tokens=[request.id, *prompt]))
    apart.run()
    assert sum(bench.runner.widths) < sum(apart.runner.widths) - 3 * 100
    assert [bench.finished[number].cached_tokens for number in range(4)] == [0, 99, 99, 99]


def test_a_leader_may_be_aborted_at_any_moment() -> None:
    prompt = [n % 7 for n in range(150)]
    truth = continuation(prompt, 40)
    for passes in range(6):
        bench = Bench(limits=Limits(slice_alone=64, slice_beside=64, draft=8))
        for number in range(3):
            bench.add(Start(id=number, tokens=prompt, reference=truth, max_tokens=40))
        for _ in range(passes):
            bench.step()
        leader = bench.scheduler.find(0)
        if leader is not None:
            leader.aborted = True
        bench.run()
        assert bench.tokens[1] == bench.tokens[2] == truth


def test_rows_of_a_lower_priority_hardly_lengthen_a_pass() -> None:
    bench = Bench(blocks=200)
    for number in range(8):
        bench.add(Start(id=number, tokens=[number, 1, 2] * 5, max_tokens=200, reference=[3] * 100))
    bench.step()
    bench.add(Start(id=9, tokens=[9, 9, 9], max_tokens=30, priority=1))
    while 9 not in bench.finished:
        decodes = bool(bench.tokens[9])
        bench.step()
        if decodes:
            own = next(part.span for part in bench.planned if part.sequence.request.id == 9)
            cost = bench.scheduler.cost
            assert cost(bench.runner.widths[-1]) <= 1.2 * cost(len(own.tokens)) + 1e-6
    assert all(len(bench.tokens[number]) >= 10 for number in range(8)), "nobody starves"


@pytest.mark.parametrize("alone", [0.0, 3600.0])
def test_a_prompt_of_higher_priority_is_read_at_full_speed_beside_those_who_decode_below(alone: float) -> None:
    bench = Bench(limits=Limits(slice_alone=64, slice_beside=16, alone=alone), blocks=200)
    for number in range(2):
        bench.add(Start(id=number, tokens=[number, 1, 2] * 5, max_tokens=100, reference=[3] * 100, priority=-1))
    bench.step()
    before = [len(bench.tokens[number]) for number in range(2)]
    bench.add(Start(id=9, tokens=[9] * 256, max_tokens=1))
    steps = 0
    while 9 not in bench.finished:
        bench.step()
        steps += 1
        own = next(part.span for part in bench.planned if part.sequence.request.id == 9)
        cost = bench.scheduler.cost
        assert cost(bench.runner.widths[-1]) <= 1.2 * cost(len(own.tokens)) + 1e-6
    assert steps == 4, "as many passes as it would take alone"
    after = [len(bench.tokens[number]) for number in range(2)]
    if alone:
        assert after == before, "the background stands still beside a prompt that has just come"
        bench.step()
        after = [len(bench.tokens[number]) for number in range(2)]
    assert sum(after) > sum(before), "nobody starves"


@pytest.mark.parametrize(("attended", "widest"), [(3600.0, 20), (0.0, 64)])
def test_the_background_works_in_short_passes_while_somebody_may_come(attended: float, widest: int) -> None:
    bench = Bench(limits=Limits(slice_alone=64, slice_beside=64, background=10, attended=attended), blocks=200)
    bench.add(Start(id=0, tokens=[1, 2, 3], max_tokens=2))
    bench.run()
    bench.add(Start(id=1, tokens=[4] * 128, max_tokens=40, reference=[3] * 100, priority=-1))
    seen = len(bench.runner.widths)
    bench.run()
    found = max(bench.runner.widths[seen:])
    assert found >= widest if attended == 0.0 else found <= widest
