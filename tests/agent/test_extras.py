"""What nobody asked for: layout instead of an edit, and examples of use at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks import task_rows
from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.extras import changes_code, only_described, only_layout, without_examples
from vivace.agent.reply import Reply
from vivace.agent.verdict import judge
from vivace.agent.workspace import SourceFile

CODE = "def f(x):\n    # adds\n    return x+1\n"


@pytest.mark.parametrize(
    ("after", "instruction", "said"),
    [
        (CODE.replace("x+1", "x + 1"), "fix the bug", "layout"),
        (CODE.replace("x+1", "(x+1)"), "add two", "layout"),
        (CODE.replace("# adds", "# Add one, correctly"), "fix the bug in f", "comments"),
        (CODE.replace("x+1", "x+2"), "fix the bug", ""),
        (CODE.replace("x+1", "x + 1"), "follow PEP 8", ""),
        (CODE.replace("x+1", "x + 1"), "add spaces around the plus", ""),
        (CODE.replace("# adds", "# Why: because"), "say why", ""),
        (CODE.replace("# adds", "# add"), "fix the comment", ""),
        (CODE.replace("x+1", "x+"), "fix it", ""),
    ],
)
def test_layout_is_no_edit_unless_it_is_asked_for(after: str, instruction: str, said: str) -> None:
    reason = only_layout("a.py", CODE, after, instruction)
    assert said in reason and bool(said) == bool(reason)
    assert only_layout("a.js", CODE, after, instruction) == ""


PLAIN = "import re\n\n\ndef f(x, y=2):\n    z = x + y\n    return z\n"
TYPED = "def f(x: List[int], y: int = 2) -> int:\n    z: int = x + y\n    return z\n"
HINTED = "import re\nfrom typing import List\n\n\n" + TYPED


@pytest.mark.parametrize(
    ("after", "instruction", "no_edit"),
    [
        (HINTED, "fix the bug in f", True),
        (PLAIN.replace("    z =", '    """Adds."""\n    z ='), "support negative numbers", True),
        (HINTED, "add type hints", False),
        (HINTED, "correct the types", False),
        (HINTED.replace("x + y", "x - y"), "fix the bug in f", False),
        (PLAIN.replace("import re", "import re\nimport os"), "fix the unused import", True),
        (PLAIN.replace("import re\n", "import re\nfrom a import x as z\n"), "fix the NameError", False),
        (PLAIN.replace("import re\n\n\n", ""), "make it faster", False),
        (PLAIN.replace("y=2", "y=3"), "fix the default", False),
        (PLAIN + "x = (\n", "fix it", False),
    ],
)
def test_hints_and_docstrings_are_no_edit_where_behaviour_is_asked_for(
    after: str, instruction: str, no_edit: bool
) -> None:
    assert bool(only_described("a.py", PLAIN, after, instruction)) == no_edit
    assert only_described("a.js", PLAIN, after, instruction) == ""


EDITED = CODE.replace("x+1", "x+2")


@pytest.mark.parametrize(
    "tail",
    [
        "\n# Test cases\nprint(f(1))  # 3\nprint(f(2))\n",
        "\n\n# Example usage:\nvalue = 1\nprint(f(value))\n",
        "assert f(1) == 3\n",
        '\n\nif __name__ == "__main__":\n    print(f(1))\n',
    ],
)
def test_examples_of_use_are_left_out_and_told(tail: str) -> None:
    text, note = without_examples("a.py", CODE, EDITED + tail, "f must add two. Example: f(1) is 3")
    assert text == EDITED and "examples of use" in note
    assert without_examples("a.py", CODE, EDITED + tail, "add two, and print an example") == (EDITED + tail, "")
    assert without_examples("a.py", CODE + tail, EDITED + tail, "add two") == (EDITED + tail, "")


@pytest.mark.parametrize("tail", ["\n\nX = 1\n", "\n\ndef main():\n    print(1)\n", "f(1)\n", "\n# done\n"])
def test_other_code_at_the_end_stays(tail: str) -> None:
    assert without_examples("a.py", CODE, EDITED + tail, "add two") == (EDITED + tail, "")


def test_a_script_without_definitions_is_left_alone() -> None:
    assert without_examples("a.py", "x = 1\n", "x = 1\nprint(x)\n", "make it two") == ("x = 1\nprint(x)\n", "")


def test_the_verdict_uses_both() -> None:
    ask = Ask(SourceFile(Path("a.py"), "a.py", CODE.encode()), "fix the bug in f")
    tail = "\n# Test\nprint(f(1))\n"
    verdict = judge(ask, Attempt(reply=Reply("closed", EDITED + tail)))
    assert verdict.patch is not None and verdict.patch.text == EDITED and "left out" in verdict.note
    for code in (CODE + tail, CODE.replace("x+1", "x + 1")):
        assert judge(ask, Attempt(reply=Reply("closed", code))).unchanged


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_reference_answer_is_touched(name: str) -> None:
    for task in task_rows(name):
        given = task["path"], task["before"], task["reference"], task["instruction"]
        assert only_layout(*given) == "", task["id"]
        assert changes_code(*given) == "", task["id"]
        assert only_described(*given) == "", task["id"]
        assert without_examples(*given) == (task["reference"], ""), task["id"]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("x = 1; y = 2\n", "x = 1;  y = 2\n", True),
        ("x = 1; y = 2\n", "x = 1; y = 3\n", False),
        ("@a\ndef f(): pass\n", "@b\ndef f(): pass\n", False),
        ("def f():\n    pass\n", "\n\ndef f():\n\n    pass\n", True),
        ('x = """a\nb"""\n', 'x = """a\n b"""\n', False),
        ("x = 1\n", "x = 1\ny = 1\n", False),
        ("x = 'a'\n", 'x = "a"\n', True),
        ("if x:\n    a\n    b\n", "if x:\n    a\nb\n", False),
    ],
)
def test_what_means_the_same(before: str, after: str, same: bool) -> None:
    assert bool(only_layout("a.py", before, after, "fix it")) == same


HINTED = CODE.replace("def f(x):", "def f(x: int) -> int:")
BRANCHES = (
    "import os\n\n\nclass A:\n    x = 1\n\n    def f(self, x):\n        if x:\n            return 1\n        return 2\n"
)


@pytest.mark.parametrize(
    ("instruction", "before", "after"),
    [
        ("Add type hints to all functions.", CODE, HINTED),
        ("Add type hints to f", CODE, f"from typing import Any\n\n\n{HINTED}"),
        ("Add type annotations", BRANCHES, BRANCHES.replace("x = 1", "x: int = 1")),
        ("Add type hints", "x = 1\n", "from typing import TypeVar\nT = TypeVar('T')\nx: int = 1\n"),
        ("Add a docstring to f.", "def f():\n    pass\n", 'def f():\n    """Says what."""\n'),
        ("Please add comments", CODE, CODE.replace("# adds", "# adds one")),
        ("Document the class A", BRANCHES, BRANCHES.replace("class A:\n", 'class A:\n    """An A."""\n\n')),
        ("Give f a docstring", CODE, CODE.replace("    # adds\n", '    """Adds."""\n')),
    ],
)
def test_a_description_is_no_change_of_code(instruction: str, before: str, after: str) -> None:
    assert changes_code("a.py", before, after, instruction) == ""


@pytest.mark.parametrize(
    "instruction",
    [
        "Add type hints to all functions.",
        "Add a docstring to A.f",
        "Please write comments for f",
        "Document it",
        "annotate A",
    ],
)
@pytest.mark.parametrize(
    ("gone", "come"),
    [
        ("return 1", "return 2"),
        ("if x:", "if not x:"),
        ("x = 1", "x = 2"),
        ("    return 2\n", ""),
        ("f(self, x)", "f(self)"),
    ],
)
def test_who_asks_for_a_description_gets_no_other_code(instruction: str, gone: str, come: str) -> None:
    assert BRANCHES.count(gone) >= 1
    reason = changes_code("a.py", BRANCHES, BRANCHES.replace(gone, come), instruction)
    assert reason.startswith("the answer also changes what the code does") and reason.endswith(" only")


@pytest.mark.parametrize(
    "instruction",
    [
        "Add a docstring to f and fix its bug",
        "Add type hints. Then sort the list.",
        "Add comments, and make it faster",
        "Comment out the call",
        "Add two",
        "Fix the comment",
    ],
)
def test_who_asks_for_more_may_get_it(instruction: str) -> None:
    assert changes_code("a.py", BRANCHES, BRANCHES.replace("return 1", "return 2"), instruction) == ""


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("a.js", "// f\nfunction f() { return 1; }\n"),
        ("a.ts", "function f(): number { return 1; }\n"),
        ("a.go", "package m\n\n// f\nfunc f() int { return 1 }\n"),
        ("a.rs", "/// f\nfn f() -> i32 { return 1; }\n"),
        ("A.java", "class A { int f() { return 1; } }\n"),
        ("a.c", "int f(void) { return 1; }\n"),
        ("a.sh", "# f\nf() { return 1; }\n"),
    ],
)
def test_comments_of_other_languages(name: str, before: str) -> None:
    comment = "# why\n" if name == "a.sh" else "// why\n"
    for asked in ("Add comments", "Add a JSDoc comment to f"):
        assert changes_code(name, before, before + comment, asked) == ""
        assert "also changes" in changes_code(name, before, before.replace("return 1", "return 2"), asked)
    assert changes_code("a.xyz", "a\n", "b\n", "Add comments") == ""
