"""What a reply drops and the file keeps: put back exactly, told, and only where nobody asked for it to go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks import task_rows
from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.keep import put_back_kept
from vivace.agent.reply import Reply
from vivace.agent.verdict import judge
from vivace.agent.workspace import SourceFile

MODULE = '''#!/usr/bin/env python3
# Copyright 2020 Somebody
# All rights kept.

"""A module.

With more to say.
"""

import os


@decorated
class A:
    """An A."""

    size = 1

    def f(self, x):
        """Adds one."""
        return x


def g():
    return 2
'''


@pytest.mark.parametrize(
    "gone",
    [
        "#!/usr/bin/env python3\n",
        "#!/usr/bin/env python3\n# Copyright 2020 Somebody\n# All rights kept.\n\n",
        MODULE[MODULE.index('"""A module') : MODULE.index("import os")],
        MODULE[: MODULE.index("import os")],
        '    """An A."""\n\n',
        '        """Adds one."""\n',
    ],
)
def test_what_was_dropped_beside_the_edit_is_put_back_and_told(gone: str) -> None:
    edited = MODULE.replace("return 2", "return 3")
    assert edited.count(gone) == 1
    text, note = put_back_kept("a.py", MODULE, edited.replace(gone, ""), "g must return 3")
    assert text == edited
    assert note.startswith("kept the ") and note.endswith(", which the answer left out")


def test_a_rename_keeps_its_docstrings() -> None:
    renamed = MODULE.replace("class A", "class B").replace("def g", "def h")
    assert put_back_kept("a.py", MODULE, renamed.replace('    """An A."""\n\n', ""), "better names")[0] == renamed


@pytest.mark.parametrize(
    ("before", "after", "instruction"),
    [
        (MODULE, MODULE.replace('        """Adds one."""\n', ""), "remove the docstring of A.f"),
        (MODULE, MODULE.replace("# All rights kept.\n", ""), "correct the header"),
        (MODULE, MODULE.replace("Adds one.", "Adds two."), "f must add two"),
        (MODULE, MODULE.replace("# All rights kept.\n", "# No rights kept.\n"), "give it away"),
        ("# counts\nx = 1\ny = 1\n", "y = 1\n", "drop x"),
        ("# counts\nx = 1\n", "x = 1\n# counts\n", "put it elsewhere"),
        ('def f():\n    """Old."""\n    return 1\n', "def f(): return 1\n", "on one line"),
        ('def f():\n    """Old."""; return 1\n', "def f():\n    return 2\n", "return 2"),
        ('"""Old."""\nx = 1\n', "", "x"),
        ('"""Old."""\nx = 1\n', "x = (\n", "x"),
        ('{"a": 1}\n', '{"a": 2}\n', "two"),
    ],
)
def test_hands_off(before: str, after: str, instruction: str) -> None:
    name = "a.json" if before.startswith("{") else "a.py"
    assert put_back_kept(name, before, after, instruction) == (after, "")


@pytest.mark.parametrize(
    ("name", "head", "rest"),
    [
        ("a.js", "/* Licence\n * MIT\n */\n\n", "let x = 1;\n"),
        ("a.go", "//go:build linux\n\n", "package m\n"),
        ("a.sh", "#!/bin/sh\n", "echo 1\n"),
        ("a.html", "<!-- made by hand -->\n\n", "<p>1</p>\n"),
        ("a.sql", "-- all of them\n\n", "select 1;\n"),
    ],
)
def test_heads_of_other_languages(name: str, head: str, rest: str) -> None:
    assert put_back_kept(name, head + rest, rest.replace("1", "2"), "two")[0] == head + rest.replace("1", "2")


def test_the_verdict_tells_it_and_an_answer_that_only_drops_is_no_edit() -> None:
    source = SourceFile(Path("a.py"), "a.py", MODULE.replace("\n", "\r\n").encode())
    ask = Ask(source, "g must return 3")
    bare = MODULE[MODULE.index("import os") :]
    verdict = judge(ask, Attempt(reply=Reply("closed", bare.replace("return 2", "return 3"))))
    assert verdict.patch is not None and verdict.patch.lines_changed == 1 and "kept" in verdict.note
    assert verdict.patch.data == source.raw.replace(b"return 2", b"return 3")
    assert judge(ask, Attempt(reply=Reply("closed", bare))).unchanged


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_reference_answer_is_touched(name: str) -> None:
    for task in task_rows(name):
        found = put_back_kept(task["path"], task["before"], task["reference"], task["instruction"])
        assert found == (task["reference"], ""), task["id"]
