"""Commands: ended whole and at once, answered by both ends, jobs that belong to the conversation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.tools.bench import call, context_for, within
from vivace.agent.tools.base import ToolResult
from vivace.agent.tools.output import END, Output
from vivace.agent.tools.process import MARK
from vivace.agent.tools.processes import Job, Processes

Make = Callable[..., Awaitable[ToolResult]]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def pid_in(file: Path) -> int:
    """The process id that a command writes to ``file``."""
    for _ in range(500):
        if file.exists() and file.read_text().endswith("\n"):
            return int(file.read_text())
        await asyncio.sleep(0.01)
    raise AssertionError("the command did not start")


def test_output_code_and_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    result = call(context_for(tmp_path), "shell", command="pwd; echo err >&2; exit 3", folder="sub")
    assert result.text.endswith(f"{tmp_path.resolve()}/sub\nerr") and "exit code 3" in result.text
    assert (result.ok, result.data["code"], result.data["ended"]) == (False, 3, "exited")
    assert call(context_for(tmp_path), "shell", command="true").text.endswith("(no output)")
    assert "killed by signal 9" in call(context_for(tmp_path), "shell", command="kill -9 $$").text
    assert call(context_for(tmp_path), "shell", command="cat", timeout=5).ok  # no input, so it ends
    assert not call(context_for(tmp_path), "shell", command="  ").ok


def test_much_output_keeps_its_ends_and_says_what_is_missing(tmp_path: Path) -> None:
    pieces: list[str] = []
    context = context_for(tmp_path, budget=500, on_output=pieces.append)
    result = call(context, "shell", command="seq 1 200000; echo the end")
    assert context.count(result.text) <= 500 and "\n1\n2\n" in result.text and result.text.endswith("the end")
    assert re.search(r"\[\.\.\. [\d,]+ lines left out \.\.\.\]", result.text)
    assert len("".join(pieces)) == 1_288_895 + len("the end\n")
    assert call(context, "shell", command="printf 'a\\033[31mb\\033[0m\\033]0;t\\007c\\xff'").text.endswith("abc\ufffd")


def test_output_is_bounded_and_escape_codes_may_be_cut_anywhere() -> None:
    output = Output()
    for _ in range(100):
        output.feed(b"x" * 10_000)
    assert len(output.text) < 2 * END + 100 and f"{1_000_000 - 2 * END:,} characters dropped" in output.text
    whole = "a\x1b[1;31mé\x1b]8;;http://x\x1b\\link\x1b(Bz".encode()
    for cut in range(len(whole)):
        output = Output()
        output.feed(whole[:cut])
        output.feed(whole[cut:])
        output.feed(b"", final=True)
        assert output.text == "aélinkBz"


def test_secrets_are_not_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("GH_TOKEN", "t")
    monkeypatch.setenv("KEYBOARD", "us")
    text = call(context_for(tmp_path), "shell", command="env").text
    assert "sk-1" not in text and "GH_TOKEN" not in text and "KEYBOARD=us" in text and "PAGER=cat" in text


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
@pytest.mark.parametrize("stubborn", ["", "trap '' TERM INT HUP; "])
@pytest.mark.parametrize("escape", ["", "setsid "])
def test_complaint_6_interrupt_ends_the_whole_group_within_100_ms(tmp_path: Path, stubborn: str, escape: str) -> None:
    inner = f"{stubborn}echo $BASHPID > pid; while :; do sleep 0.05; done"
    command = f"{stubborn}({escape}bash -c '{inner.replace(chr(39), chr(34))}'); echo not reached"
    context = context_for(tmp_path)

    async def work(make: Make) -> tuple[float, int, ToolResult]:
        task = asyncio.ensure_future(make("shell", command=command, timeout=60))
        pid = await pid_in(tmp_path / "pid")
        before = time.perf_counter()
        assert await context.processes.interrupt() == 1
        return time.perf_counter() - before, pid, await task

    times = []
    for _ in range(3):  # the machine may be busy with something else
        (tmp_path / "pid").unlink(missing_ok=True)
        took, pid, result = within(context, work)
        assert not alive(pid)
        assert result.data["ended"] == "interrupted" and "interrupted by the user" in result.text
        times.append(took)
    assert min(times) < 0.1, times


def test_a_timeout_and_a_cancelled_task_end_it_too(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    result = call(context, "shell", command="echo before; sleep 60", timeout=0.3)
    assert result.data["ended"] == "timeout" and "still running" in result.text and result.text.endswith("before")

    async def work(make: Make) -> int:
        task = asyncio.ensure_future(make("shell", command="echo $$ > pid; sleep 60", timeout=60))
        pid = await pid_in(tmp_path / "pid")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return pid

    assert not alive(within(context, work))


def test_complaint_16_nothing_is_left_behind_a_command(tmp_path: Path) -> None:
    result = call(context_for(tmp_path), "shell", command="sleep 61 & echo $! > pid; echo done")
    assert result.ok and result.data["leftover"] and "use background" in result.text
    assert not alive(int((tmp_path / "pid").read_text()))
    assert result.data["seconds"] < 30  # not the minute that it sleeps
    quiet = call(context_for(tmp_path), "shell", command="(sleep 62 > /dev/null 2>&1 &) ; echo done")
    assert quiet.data["leftover"]


def test_complaint_7_jobs_go_on_when_the_turn_is_interrupted(tmp_path: Path) -> None:
    ended: list[str] = []

    def told(job: Job) -> None:
        ended.append(f"{job.id} {job.state}")

    context = context_for(tmp_path, processes=Processes(on_job_end=told))

    async def work(make: Make) -> int:
        started = await make("shell", command="echo one; read -t 0.4 < <(sleep 1); echo two; sleep 60", background=True)
        assert started.data["job"] == "job-1"
        await context.processes.interrupt()
        assert (await make("jobs")).data["jobs"][0]["state"] == "running"
        text = ""
        while "\ntwo" not in text:
            text += (await make("jobs", do="wait", job="job-1", seconds=0.2)).text
        assert text.count("\none") == text.count("\ntwo") == 1  # what was told is not told again
        assert "(nothing new)" in (await make("jobs", do="poll", job="job-1")).text
        quick = await make("shell", command="exit 4", background=True)
        done = await make("jobs", do="wait", job=quick.data["job"])
        assert "exited with code 4" in done.text
        assert "Did you mean job-1" in (await make("jobs", do="kill", job="job1")).text
        killed = await make("jobs", do="kill", job="job-1")
        assert "interrupted" in killed.text
        last = await make("shell", command="echo $$ > pid; sleep 60", background=True)
        assert last.ok
        return await pid_in(tmp_path / "pid")

    pid = within(context, work)
    assert not alive(pid)
    assert ended == ["job-2 exited with code 4", "job-1 interrupted", "job-3 interrupted"]


def test_too_many_jobs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivace.agent.tools.processes.MAX_JOBS", 2)

    async def work(make: Make) -> list[Any]:
        return [await make("shell", command="sleep 60", background=True) for _ in range(3)]

    results = within(context_for(tmp_path), work)
    assert [result.ok for result in results] == [True, True, False] and "job-1, job-2" in results[2].text


def test_no_command_of_the_tests_is_left() -> None:
    own = [entry for entry in Path("/proc").glob("[0-9]*/environ") if os.access(entry, os.R_OK)]
    left = []
    for entry in own:
        with contextlib.suppress(OSError):
            if f"{MARK}=".encode() in entry.read_bytes() and b"PYTEST_CURRENT_TEST" in entry.read_bytes():
                left.append(entry)
    assert left == []
