"""Examples: what is read out of words, what they come to in a sandbox, and calls that are made up."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.turns.examples import Example, examples_of, literal
from vivace.agent.turns.inputs import inputs_of
from vivace.agent.turns.verify import Ground, Report, Verifier

FILE = "def f(x, y=1):\n    return x\n"


def asked(instruction: str, text: str = FILE) -> list[tuple[str, str]]:
    return [(example.call, example.value or f"!{example.error}") for example in examples_of(instruction, text)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("f(2) == 4", ("f(2)", "4")),
        ("so that `f(2)` should return `4`", ("f(2)", "4")),
        ("f([1, 2]) returns [2, 1].", ("f([1, 2])", "[2, 1]")),
        ('f("a, b") => "b, a"', ('f("a, b")', '"b, a"')),
        ("f(')') ➞ '('", ("f(')')", "'('")),
        ("f(2) -> 16.", ("f(2)", "16")),
        ("f(x=3) # => True (since 3 is odd)", ("f(x=3)", "True")),
        ("* f([]) ==> None", ("f([])", "None")),
        ("f(-1) should raise ValueError", ("f(-1)", "!ValueError")),
        ("Let f raise an error: f('') raises a TypeError.", ("f('')", "!TypeError")),
        (">>> f(3)\n9", ("f(3)", "9")),
        (">>> f(3) == 9", ("f(3)", "9")),
        ("should return 3 for [1, 2]", ("f([1, 2])", "3")),
        ("It returns 3 when given 9.", ("f(9)", "3")),
        ("Input: [4, 2]\nOutput: [2, 1]", ("f([4, 2])", "[2, 1]")),
        ("Input: x = [4, 2], y = 3\nOutput: 7", ("f(x=[4, 2], y=3)", "7")),
        ('For x = "a", y = 2 the result should be "aa"', ('f(x="a", y=2)', '"aa"')),
        ("For n = 150, the sum will be 6 and the output should be 6", ("f(150)", "6")),
        # New names count, too, as long as nothing of Python's own is called so.
        ("Add a function g, so that g(1) == 2", ("g(1)", "2")),
    ],
)
def test_what_is_read(words: str, found: tuple[str, str]) -> None:
    assert asked(words) == [found]


@pytest.mark.parametrize(
    "words",
    [
        "f(2) returns 5 instead of 4",
        "f(2) currently returns 5",
        "f(2) returns 5, but 4 is right",
        "f(name) == 4",
        "f(2) is called often",
        "f(2) and g",
        "f(2",
        "f(2) == ''a''",
        "f(open('x')) == 4",
        "f(*[1]) == 4",
        "obj.f(2) == 4",
        "len([1]) == 1",
        "print(2) -> 2",
        "return 3",
        "the result should be better",
        "",
    ],
)
def test_what_is_no_example(words: str) -> None:
    assert asked(words) == []


def test_docstrings_count_where_something_is_to_be_mended() -> None:
    text = 'def f(x):\n    """Twice.\n\n    f(2) == 4\n\n    >>> f(3)\n    6\n    """\n    return x\n'
    assert asked("add a parameter", text) == [("f(3)", "6")]
    assert asked("fix f", text) == [("f(2)", "4"), ("f(3)", "6")]
    assert not any(example.asked for example in examples_of("fix f", text))
    assert examples_of("fix: f(3) == 7", text)[0] == Example("f(3)", "7")


@given(st.text(max_size=80), st.text(max_size=80))
def test_nothing_that_a_person_writes_breaks_it(words: str, more: str) -> None:
    for example in examples_of(f"{words}f(1) == {more}\n{more}", FILE):
        ast.parse(example.call, mode="eval")
        assert example.error or ast.literal_eval(example.value) is not NotImplemented


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5)


@given(JSON, st.sampled_from([".", " # so", ", and", " (as before)", ""]))
def test_a_literal_is_read_whole(value: object, after: str) -> None:
    found = literal(f"{value!r}{after}")
    assert found is not None and ast.literal_eval(found[0]) == value


# -- run -------------------------------------------------------------------------------------------------------------


def verified(tmp_path: Path, before: str, instruction: str, *texts: str, boxed: bool = True) -> list[Report]:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(before)

    async def run() -> list[Report]:
        ground = await Ground.apart(root, tmp_path / "apart")
        if boxed and not ground.context.sandbox.holds:
            pytest.skip("there is no sandbox here")
        verifier = Verifier(ground, ["a.py"], instruction)
        try:
            await verifier.prepare()
            return [await verifier.verify({"a.py": text.encode()}) for text in texts]
        finally:
            await verifier.close()
            await ground.context.processes.close()

    return asyncio.run(run())


def test_examples_are_run_and_told(tmp_path: Path) -> None:
    good, bad, dead = verified(
        tmp_path,
        "def f(x):\n    return x\n",
        "let f double: f(2) == 4, f([1]) == [1, 1] and f('') raises ValueError",
        "def f(x):\n    if x == '':\n        raise UnicodeError\n    return x + x\n",
        "def f(x):\n    return 4\n",
        "import missing\ndef f(x):\n    return x + x\n",
        boxed=False,
    )
    assert good.ok and good.tested and good.words == "checked: 3 examples"
    assert not bad.ok and bad.failure == "2 of 3 examples do not hold" and bad.faults == 2
    assert "f([1]) should give [1, 1], not 4" in bad.output and "f('') should raise ValueError, not 4" in bad.output
    assert not dead.ok and "a.py does not run (ModuleNotFoundError: No module named 'missing')" in dead.failure
    assert dead.faults > bad.faults


HOST = """from __future__ import annotations

from .missing import Base, register
import not_installed_anywhere as gone


@register
def other(x: gone.Kind) -> int:
    return x


class Child(Base):
    pass


HALF = 2


def half(x: gone.Kind) -> int:
    return x
"""


def test_a_file_whose_imports_are_not_here_is_loaded_in_parts(tmp_path: Path) -> None:
    good, bad, dead, lacking = verified(
        tmp_path,
        HOST,
        "fix the function `half`: half(4) == 2",
        HOST.replace("-> int:\n    return x\n", "-> int:\n    return x // HALF\n"),
        HOST.replace("    return x\n", "    return x + 1\n"),
        HOST.replace("    return x\n", "    return (x\n"),
        HOST.replace("    return x\n", "    return math.floor(x / 2)\n"),
        boxed=False,
    )
    assert good.ok and good.tested and good.words == "checked: 1 example"
    assert not bad.ok and "half(4) should give 2, not 5" in bad.output
    assert not dead.ok and "does not run (SyntaxError" in dead.failure
    assert not lacking.ok and "NameError when it runs" in lacking.failure


def test_candidates_that_behave_alike_are_known_by_it(tmp_path: Path) -> None:
    before = "def total(numbers):\n    return len(numbers)\n"
    one, other, third, same = verified(
        tmp_path,
        before,
        "let total add up the numbers",
        "def total(numbers):\n    return sum(numbers)\n",
        "def total(numbers):\n    result = 0\n    for n in numbers:\n        result += n\n    return result\n",
        "def total(numbers):\n    return numbers[0] if numbers else 0\n",
        "def total(numbers):\n    return len(list(numbers))\n",
    )
    assert one.behaviour == other.behaviour != third.behaviour and one.behaviour
    assert one.moved and not same.moved and one.ok and not one.tested


def test_a_name_that_is_missing_is_found_by_calling(tmp_path: Path) -> None:
    (report,) = verified(tmp_path, "def f(n):\n    return n\n", "use math", "def f(n):\n    return math.floor(n)\n")
    assert not report.ok and "NameError" in report.failure


def test_what_is_called_can_do_no_harm_and_not_go_on_for_ever(tmp_path: Path) -> None:
    canary = tmp_path / "work" / "canary"
    text = (
        "import os, sys, time\n\n\ndef f(n):\n"
        f"    open({str(canary)!r}, 'w')\n\n\ndef g(n):\n    while True:\n        pass\n\n\n"
        "def h(n):\n    os._exit(0)\n"
    )
    before = "def f(n):\n    return n\n\n\ndef g(n):\n    return n\n\n\ndef h(n):\n    return n\n"
    (report,) = verified(tmp_path, before, "f(1) == 1, g(1) == 1, h(1) == 1", text)
    assert not canary.exists() and (tmp_path / "work" / "a.py").read_text() == before
    assert not report.ok and "ends the process" in report.failure


def test_inputs_are_like_the_examples_or_like_the_parameters() -> None:
    found = inputs_of(FILE, "f", [Example("f([1, 2], y='ab')", "3")])
    assert found[0] == "f([1, 2], y='ab')" and "f([2, 1], y='ab')" in found and "f([1, 2], y='ba')" in found
    made = inputs_of("from typing import List\ndef g(rows: List[int], s: str) -> int:\n    return 0\n", "change g", [])
    assert made and all(isinstance(ast.literal_eval(call[2:-1])[0], list) for call in made)
    assert made == inputs_of("from typing import List\ndef g(rows: List[int], s: str) -> int:\n    return 0\n", "g", [])
    assert inputs_of("class A:\n    pass\n", "change A", []) == [] == inputs_of("def (", "x", [])


@given(st.sampled_from(["x", "n, s", "a, b, c", "*args", "x, *, y", "x, *, y=1", "s=''", "", "self, words"]))
def test_every_made_up_call_fits_the_parameters(parameters: str) -> None:
    names: dict[str, object] = {}
    text = f"def f({parameters}):\n    return 1\n"
    exec(text, names)
    for call in inputs_of(text, "f", []):
        assert eval(call, names) == 1
