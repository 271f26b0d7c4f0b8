"""The edit turn against a scripted service: choosing, resampling, stopping, all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.scripted import Script, ScriptedService
from vivace.agent.edit import apply, edit, read_sources
from vivace.agent.result import Began, EditEvent, EditRequest, EditResult, Lines, Opened, Settled
from vivace.errors import UsageError, VivaceError

OLD = "def f(x):\n    return x\n\n\ndef g():\n    return 2\n"
NEW = OLD.replace("return x", "return x + 1")
WIDE = OLD.replace("return x", "y = x + 1\n    return y").replace("return 2", "return 3")


def turn(
    folder: Path,
    scripts: Sequence[Script],
    instruction: str = "add one",
    *,
    paths: Sequence[str] = ("a.py",),
    window: int = 32_768,
    events: list[EditEvent] | None = None,
    **options: object,
) -> tuple[EditResult, ScriptedService]:
    for path in paths:
        if not (folder / path).exists():
            (folder / path).write_text(OLD)
    request = EditRequest(paths, instruction, "m", root=folder, **options)  # type: ignore[arg-type]
    service = ScriptedService(list(scripts), window=window)
    heard = events if events is not None else []
    result = asyncio.run(edit(service, request, read_sources(request), heard.append))
    return result, service


def test_a_whole_file_is_asked_for_once_greedily_with_itself_as_the_draft(tmp_path: Path) -> None:
    events: list[EditEvent] = []
    result, service = turn(tmp_path, [Script.file(NEW, accepted=5)], events=events)
    (request,) = service.requests
    assert request.prediction is not None and request.prediction.content == f"```python\n{OLD}```"
    assert (request.temperature, request.seed) == (0.0, 0)
    assert request.max_output_tokens is not None and 1000 < request.max_output_tokens < 1300
    assert result.status == "changed" and result.lines_changed == 1
    output = service.generations[0].sent
    assert (result.output_tokens, result.draft_accepted) == (output, 5 / output)
    assert result.ttft is not None and result.decode_rate is not None and result.seconds > 0
    assert (tmp_path / "a.py").read_text() == OLD, "edit never writes"
    apply(result)
    assert (tmp_path / "a.py").read_text() == NEW
    assert [type(event) for event in events if not isinstance(event, Lines)] == [Opened, Began, Settled]
    assert [line for event in events if isinstance(event, Lines) for line in event.lines] == NEW.splitlines()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Script.file(OLD.replace("return x", "return (")), "does not parse"),
        (Script.file("def f(x):\n    # rest of the code unchanged\n"), "leaves code out"),
        (Script.file(OLD.split("\n\n\n")[0] + "\n"), "g would be lost"),
        (Script("```python\n" + NEW), "breaks off"),
        (Script("```python\n" + NEW, end="incomplete"), "max_output_tokens"),
        (Script("I cannot do that."), "no code"),
        (Script.file(OLD), "unchanged"),
    ],
)
def test_a_bad_answer_is_asked_for_anew_once(tmp_path: Path, bad: Script, why: str) -> None:
    events: list[EditEvent] = []
    result, service = turn(tmp_path, [bad, Script.file(NEW)], events=events)
    assert result.status == "changed" and result.lines_changed == 1
    first, second = service.requests
    assert second.seed != first.seed and isinstance(first.input, str) and isinstance(second.input, str)
    if why in ("no code", "unchanged"):  # the free manner: the same up to the instruction, which is the last word
        assert second.temperature == 0.0 and second.input.endswith("\n\nadd one")
        assert first.input.startswith(second.input)
    else:
        assert second.temperature == 0.7 and second.input == first.input
    assert why in [event.retry for event in events if isinstance(event, Began)][1]
    result, service = turn(tmp_path, [bad])
    assert result.status in ("refused", "unchanged") and len(service.requests) == 2
    assert why in result.files[0].reason and result.patches == []


@pytest.mark.parametrize(
    ("scripts", "status"),
    [
        ([Script.file(OLD), Script.file(OLD)], "unchanged"),
        ([Script(""), Script("")], "unchanged"),
        ([Script.file("x = ("), Script.file(OLD)], "unchanged"),
        ([Script.file(OLD), Script.file("x = (")], "unchanged"),
        ([Script.file("x = (")], "refused"),
    ],
)
def test_what_two_bad_rounds_come_to(tmp_path: Path, scripts: list[Script], status: str) -> None:
    result, _ = turn(tmp_path, scripts)
    assert result.status == status


@pytest.mark.parametrize("end", ["failed", "lost"])
def test_a_service_that_fails_is_not_asked_again(tmp_path: Path, end: str) -> None:
    with pytest.raises(VivaceError) as caught:
        turn(tmp_path, [Script("```python\n" + NEW, end=end)])  # type: ignore[arg-type]
    assert caught.value.code == "generation_failed" and caught.value.exit_code == 1


def test_talk_after_the_closing_fence_ends_the_generation(tmp_path: Path) -> None:
    result, service = turn(tmp_path, [Script(f"```python\n{NEW}```\n" + "I changed it. " * 50)])
    (generation,) = service.generations
    assert result.status == "changed" and generation.stopped == ["cancelled"]
    assert generation.sent < 20 and result.output_tokens == generation.sent


def test_an_answer_cut_after_its_closing_fence_is_whole(tmp_path: Path) -> None:
    result, _ = turn(tmp_path, [Script(f"```python\n{NEW}```\n", end="incomplete")])
    assert result.status == "changed"


def test_the_smallest_valid_diff_wins(tmp_path: Path) -> None:
    broken = Script.file(OLD.replace("return x", "return ("))
    tiny = Script.file(OLD.replace("return 2", "return 3"))
    result, service = turn(tmp_path, [broken, Script.file(WIDE), tiny], candidates=3)
    assert len(service.requests) == 3 and result.files[0].patch is not None
    assert result.files[0].patch.text == OLD.replace("return 2", "return 3")
    assert [request.temperature for request in service.requests] == [0.0, 0.6, 0.6]
    assert [request.seed for request in service.requests] == [0, 1, 2]
    assert result.output_tokens == sum(generation.sent for generation in service.generations)


def test_a_tie_goes_to_the_lowest_index(tmp_path: Path) -> None:
    other = OLD.replace("return x", "return x + 2")
    result, _ = turn(tmp_path, [Script.file(NEW, pause=0.01), Script.file(other)], candidates=2)
    assert result.files[0].patch is not None and result.files[0].patch.text == NEW


def test_the_others_are_stopped_when_the_race_is_lost(tmp_path: Path) -> None:
    result, service = turn(tmp_path, [Script.file(NEW), Script("```python\n", end="hang")], candidates=2)
    assert result.status == "changed"
    assert [generation.stopped for generation in service.generations] == [[], ["lost_race"]]


def test_no_race_waits_for_an_answer_that_runs_on(tmp_path: Path) -> None:
    endless = Script("```python\n" + OLD + "x = 1\n" * 5_000, pause=0.001)
    result, service = turn(tmp_path, [Script.file(WIDE), Script.file(WIDE), endless], candidates=3)
    assert result.status == "changed" and result.files[0].patch is not None
    last = service.generations[2]
    assert last.stopped == ["cancelled"] and last.sent * endless.chunk <= 2 * len(WIDE) + 500
    assert "ran on" in result.files[0].attempts[2].failure and not result.files[0].attempts[2].lost


def test_an_answer_may_be_long_where_the_others_gave_nothing(tmp_path: Path) -> None:
    long = OLD + "".join(f"\n\ndef more_{n}():\n    return {n}\n" for n in range(60))
    asked = "add functions more_0 to more_59"
    scripts = [Script.file(OLD), Script.file(OLD), Script.file(long, pause=0.001)]
    result, _ = turn(tmp_path, scripts, asked, candidates=3)
    assert result.status == "changed" and result.files[0].patch is not None and result.files[0].patch.text == long


def test_without_the_greedy_answer_all_are_sampled(tmp_path: Path) -> None:
    _, service = turn(tmp_path, [Script.file(WIDE)], candidates=2, greedy=False)
    assert [request.temperature for request in service.requests] == [0.6, 0.6]


def test_a_temperature_of_the_user_is_kept(tmp_path: Path) -> None:
    _, service = turn(tmp_path, [Script.file(WIDE)], candidates=2, temperature=0.3, seed=5)
    assert [(r.temperature, r.seed) for r in service.requests] == [(0.3, 320), (0.3, 321)]
    _, service = turn(tmp_path, [Script.file(WIDE)], candidates=2, temperature=0.0)
    assert [r.temperature for r in service.requests] == [0.0, 0.6]


def test_several_files_are_changed_all_or_none(tmp_path: Path) -> None:
    result, _ = turn(tmp_path, [Script.file(NEW), Script.file(OLD)], paths=["a.py", "b.py"])
    assert [file.status for file in result.files] == ["changed", "unchanged"]
    apply(result)
    assert [(tmp_path / name).read_text() for name in ("a.py", "b.py")] == [NEW, OLD]
    (tmp_path / "a.py").write_text(OLD)
    result, _ = turn(tmp_path, [Script.file(NEW), Script.file("x = (")], paths=["a.py", "b.py"])
    assert result.status == "refused" and result.patches == []
    apply(result)
    assert (tmp_path / "a.py").read_text() == OLD


def long_file(functions: int) -> str:
    return "import os\n\n\n" + "\n\n\n".join(f"def task_{n}(x):\n    return x + {n}" for n in range(functions)) + "\n"


def test_a_long_file_is_edited_by_the_function_that_is_named(tmp_path: Path) -> None:
    text = long_file(80)
    (tmp_path / "a.py").write_text(text)
    answer = Script.file("def task_7(x):\n    return x + 70\n")
    result, service = turn(tmp_path, [answer], "task_7 must add seventy")
    assert result.files[0].patch is not None
    assert result.files[0].patch.text == text.replace("return x + 7\n", "return x + 70\n")
    assert service.requests[0].prediction is not None
    assert service.requests[0].prediction.content == "```python\ndef task_7(x):\n    return x + 7\n```"
    _, service = turn(tmp_path, [answer], "make everything faster")
    assert isinstance(service.requests[0].input, str) and text in service.requests[0].input


def test_a_file_too_long_for_the_window_is_edited_by_region_or_refused_before_any_call(tmp_path: Path) -> None:
    text = long_file(150).replace("task_9(", "total_price(")
    (tmp_path / "a.py").write_text(text)
    answer = Script.file("def total_price(x):\n    return x - 9\n")
    result, _ = turn(tmp_path, [answer], "the price must be lower in total", window=2000)
    assert result.files[0].patch is not None and result.lines_changed == 1
    for instruction, window in (("zzz", 2000), ("task_7 must add", 200)):
        with pytest.raises(UsageError) as caught:
            turn(tmp_path, [answer], instruction, window=window)
        assert caught.value.code == "too_large"


def test_cancelling_stops_the_generation_and_leaves_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    request = EditRequest(["a.py"], "add one", "m", root=tmp_path, candidates=2)
    service = ScriptedService([Script.file(NEW, pause=0.02)])

    async def scenario() -> None:
        task = asyncio.create_task(edit(service, request, read_sources(request), lambda _: None))
        await asyncio.sleep(0.06)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert [generation.stopped for generation in service.generations] == [["cancelled"], ["cancelled"]]
    assert (tmp_path / "a.py").read_text() == OLD and len(list(tmp_path.iterdir())) == 1


def test_a_listener_that_fails_stops_the_generation(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    request = EditRequest(["a.py"], "add one", "m", root=tmp_path)
    service = ScriptedService([Script.file(NEW)])

    def listener(event: EditEvent) -> None:
        if isinstance(event, Lines):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        asyncio.run(edit(service, request, read_sources(request), listener))
    assert service.generations[0].stopped == ["cancelled"]


@pytest.mark.parametrize("options", [{"candidates": 0}, {"temperature": -1.0}, {"temperature": 9.0}])
def test_options_out_of_range_are_usage_errors(tmp_path: Path, options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        turn(tmp_path, [Script.file(NEW)], **options)


def test_an_empty_file_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    result, service = turn(tmp_path, [Script.file("def main():\n    pass\n")], "write a main function")
    assert service.requests[0].prediction is None
    apply(result)
    assert (tmp_path / "a.py").read_text() == "def main():\n    pass\n"


def test_a_rename_is_not_confined_to_the_function_that_it_names(tmp_path: Path) -> None:
    text = long_file(80)
    (tmp_path / "a.py").write_text(text)
    renamed = Script.file(text.replace("task_7(", "seventh("))
    result, service = turn(tmp_path, [renamed], "rename task_7 to seventh")
    assert result.status == "changed"
    assert isinstance(service.requests[0].input, str) and text in service.requests[0].input
