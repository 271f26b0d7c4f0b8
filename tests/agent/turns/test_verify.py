"""What counts against a change: what it makes worse, and not what was so before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from vivace.agent.turns.verify import Ground, Report, Verifier

BEFORE = "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"
TESTS = """\
from a import f, g


def test_f():
    assert f(1) == 1


def test_g():
    assert g(1) == 2
"""


def verified(tmp_path: Path, instruction: str, *texts: str) -> list[Report]:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(BEFORE)
    (root / "test_a.py").write_text(TESTS)

    async def run() -> list[Report]:
        ground = await Ground.apart(root, tmp_path / "apart")
        verifier = Verifier(ground, ["a.py"], instruction)
        assert "tests" in [check.kind for check in verifier.checks]
        try:
            return [await verifier.verify({"a.py": text.encode()}) for text in texts]
        finally:
            await verifier.close()
            await ground.context.processes.close()

    return asyncio.run(run())


def test_a_test_that_failed_before_blocks_no_other_edit_and_proves_nothing(tmp_path: Path) -> None:
    same, worse, other, whole = verified(
        tmp_path,
        "add a docstring to f",
        BEFORE.replace("def f(x):\n", 'def f(x):\n    """As it is."""\n'),
        BEFORE.replace("def f(x):\n    return x", "def f(x):\n    return x + 1"),
        "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 1\n",
        BEFORE.replace("def g(x):\n    return x", "def g(x):\n    return x + 1"),
    )
    assert same.holds and not same.ok and same.words.endswith("as before")
    assert not worse.holds and "finds 2 faults" in worse.failure
    assert not other.holds, "one test is mended, and another one broken"
    assert whole.ok and whole.tested and "as before" not in whole.words


@pytest.mark.parametrize("instruction", ["fix g", "make the tests pass", "correct what is wrong in g"])
def test_where_something_is_to_be_mended_it_has_to_pass(tmp_path: Path, instruction: str) -> None:
    (same,) = verified(tmp_path, instruction, BEFORE.replace("\n\n\n", "\n\n\n# so\n"))
    assert not same.holds and "finds 1 fault" in same.failure


@pytest.mark.parametrize("ended", ["timeout", "interrupted"])
def test_a_check_that_was_ended_is_no_measurement(tmp_path: Path, ended: str) -> None:
    """Ended by the clock it waits for another day; ended by the user it is run again the next time."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(BEFORE)
    (root / "test_a.py").write_text("import time\nfrom a import f\n\n\ndef test_f():\n    time.sleep(60)\n")

    async def run() -> None:
        ground = await Ground.apart(root, tmp_path / "apart")
        if ended == "timeout":
            ground.measured.took("pytest test_a.py", 0.1)
            ground = replace(ground, quick=1.0)  # a check is given five seconds in any case
        verifier = Verifier(ground, ["a.py"], "add a docstring")
        assert [check.key for check in verifier.affordable] == ["pytest test_a.py"]
        try:
            work = asyncio.create_task(verifier.verify({"a.py": BEFORE.replace("x", "y").encode()}))
            while ended == "interrupted" and not work.done():
                await asyncio.sleep(0.5)  # probes of the file are ended by it, too: that is no failure either
                await ground.context.processes.interrupt()
            assert (await work).holds
            assert bool(verifier.affordable) == (ended == "interrupted")
        finally:
            await verifier.close()
            await ground.context.processes.close()

    asyncio.run(run())
