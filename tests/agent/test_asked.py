"""What no instruction asks for: the question's heading in the file, and imports of itself or of everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tasks import task_rows
from vivace.agent.asked import bad_import, leaves_the_rest, prose, without_echo
from vivace.agent.attempt import Attempt
from vivace.agent.definitions import definitions
from vivace.agent.dialect import Ask
from vivace.agent.languages import BY_SUFFIX
from vivace.agent.reply import Reply
from vivace.agent.verdict import judge
from vivace.agent.workspace import SourceFile

YAML = "services:\n  web:\n    image: nginx\n"


@pytest.mark.parametrize(
    ("name", "shown", "heading", "tail"),
    [
        ("compose.yaml", YAML, "compose.yaml:\n```yaml\n", ""),
        ("compose.yaml", YAML, "compose.yaml:\n\n```yaml\n", "```\n"),
        ("deep/compose.yaml", YAML, "compose.yaml\n", ""),
        ("deep/compose.yaml", YAML, "deep/compose.yaml:\n", ""),
        ("compose.yaml", YAML, "```yaml\n", "```\n"),
        ("a.js", "let x = 1;\n", "// a.js:\n", ""),
        ("a.css", "p {}\n", "/* a.css */\n", ""),
        ("area.py", "x = 1\n", "# area.py\n", ""),
        ("area.py", "x = 1\n", "# File: area.py\n", ""),
        ("a.sql", "select 1;\n", "-- a.sql\n", ""),
        ("a.html", "<p>1</p>\n", "<!-- a.html -->\n", ""),
        ("a.md", "# T\n\ntext\n", "a.md:\n```markdown\n", "```\n"),
        ("calendar.py", "def f(self):\n    return 1\n", "`Calendar.f` of calendar.py:\n```python\n", ""),
    ],
)
def test_the_heading_and_the_fence_of_the_question_are_left_out(name: str, shown: str, heading: str, tail: str) -> None:
    edited = shown + "more\n"
    text, note = without_echo(name, shown, heading + edited + tail, "add more")
    assert text == edited
    assert note.startswith("left out the question's heading") and heading.split("\n")[0][:60] in note


@pytest.mark.parametrize(
    ("name", "shown", "code", "instruction"),
    [
        ("area.py", "x = 1\n", "# area.py\nx = 1\n", "add a header comment with the file name"),
        ("area.py", "# area.py\nx = 1\n", "# area.py\nx = 2\n", "two"),
        ("area.py", "x = 1\n", "# the area\nx = 1\n", "say what it is"),
        ("a.md", "# T\n", "```sh\nls\n```\n# T\n", "show ls first"),
        ("a.md", "a.md:\n# T\n", "a.md:\n# U\n", "U"),
        ("Makefile", "all:\n\ttrue\n", "all:\n\tfalse\n", "fail"),
        ("a.py", "x = 1\n", "", "delete all"),
    ],
)
def test_what_is_no_echo_stays(name: str, shown: str, code: str, instruction: str) -> None:
    assert without_echo(name, shown, code, instruction) == (code, "")


@given(st.sampled_from(sorted(BY_SUFFIX)), st.lists(st.sampled_from(["a", "  b", "", "c: 1"]), min_size=1, max_size=6))
def test_in_every_language_an_echo_goes_and_the_code_stays(suffix: str, lines: list[str]) -> None:
    shown = "".join(line + "\n" for line in ["first", *lines])
    fenced = f"x{suffix}:\n```{BY_SUFFIX[suffix]}\n{shown}"
    assert without_echo(f"x{suffix}", shown, fenced, "do it")[0] == shown
    assert without_echo(f"x{suffix}", shown, shown, "do it") == (shown, "")


def test_the_verdict_leaves_the_echo_out_and_tells_it() -> None:
    ask = Ask(SourceFile(Path("compose.yaml"), "compose.yaml", YAML.encode()), "use redis")
    edited = YAML.replace("nginx", "redis")
    verdict = judge(ask, Attempt(reply=Reply("closed", f"compose.yaml:\n```yaml\n{edited}")))
    assert verdict.patch is not None and verdict.patch.text == edited and "left out the question's" in verdict.note
    assert judge(ask, Attempt(reply=Reply("closed", f"compose.yaml:\n```yaml\n{YAML}"))).unchanged


def bad(name: str, before: str, after: str, instruction: str = "add type hints", root: Path = Path()) -> str:
    return bad_import(SourceFile(root / name, name, before.encode()), after, instruction)


@pytest.mark.parametrize(
    ("name", "fresh", "said"),
    [
        ("shlex.py", "from shlex import quote", "import itself"),
        ("shlex.py", "import os, shlex", "import itself"),
        ("shlex.py", "from .shlex import quote", "import itself"),
        ("shlex.py", "from . import shlex", "import itself"),
        ("shlex.py", "from typing import *", "everything"),
        ("a/shlex.py", "def f():\n    import shlex", "import itself"),
        ("shlex.py", "from os import path", ""),
        ("shlex.py", "from other.shlex import quote", ""),
        ("__init__.py", "from .parts import *", ""),
        ("a.js", "import { x } from './a.js';", "take itself in"),
        ("a.ts", "import { x } from './a';", "take itself in"),
        ("a.js", "const a = require('./a');", "take itself in"),
        ("a.js", "import { x } from '../a.js';", ""),
        ("a.js", "import { x } from 'a';", ""),
        ("ring.h", '#include "ring.h"', "take itself in"),
        ("ring.c", '#include "ring.h"', ""),
        ("tool.sh", "source ./tool.sh", "take itself in"),
        ("tool.rb", "require_relative 'tool'", "take itself in"),
        ("a.css", '@import "a.css";', "take itself in"),
        ("a.css", '@import "b.css";', ""),
    ],
)
def test_imports_that_nobody_asks_for(name: str, fresh: str, said: str) -> None:
    before = "x = 1\n" if name.endswith(".py") else "\n"
    found = bad(name, before, f"{fresh}\n{before}")
    assert said in found and bool(said) == bool(found)
    assert bad(name, f"{fresh}\n{before}", f"{fresh}\n{before}\n") == "", "it was there before"


def test_an_import_that_is_asked_for_is_none_of_them() -> None:
    star = "from typing import *\nx = 1\n"
    assert bad("a.py", "x = 1\n", star, "add `from typing import *`") == ""
    assert bad("a.py", "x = 1\n", star, "import everything of typing") == ""
    assert bad("a.py", "x = 1\n", star, "double x: 2 * x") != ""
    # Another module under the same star: a rename.
    assert bad("a.py", "from old import *\n", "from fresh import *\n") == ""
    assert bad("a.py", "x = 1\n", "import a\nx = 1\n", "add `import a`") == ""


def test_in_a_package_the_name_of_a_module_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    for fresh, said in [
        ("import json", ""),
        ("from json import loads", ""),
        ("import pack.json", "import itself"),
        ("from pack import json", "import itself"),
        ("from . import json", "import itself"),
        ("from .json import loads", "import itself"),
        ("from .other import json", ""),
    ]:
        found = bad("pack/json.py", "x = 1\n", f"{fresh}\nx = 1\n", "fix it", tmp_path)
        assert said in found and bool(said) == bool(found), fresh


@pytest.mark.parametrize(
    ("instruction", "gone", "left"),
    [
        ("fix remove_duplicates", ["remov"], ["fix"]),
        ("fix `remove` and Set.delete", ["remov", "delet"], ["fix"]),
        ("make replace(x) faster", ["replace"], ["faster"]),
        ("do not remove anything", ["remove"], ["anything"]),
        ("without removing comments, sort", ["remov"], ["sort"]),
        ("nothing shall be deleted", ["deleted"], []),
        ("it mustn't be renamed", ["renamed"], []),
        ("remove the unused helper", [], ["remove", "unused", "helper"]),
        ("getName must convert", ["getName"], ["convert"]),
    ],
)
def test_names_of_code_and_what_shall_not_be_are_no_words_of_the_instruction(
    instruction: str, gone: list[str], left: list[str]
) -> None:
    words = prose(instruction)
    assert not [word for word in gone if word in words] and all(word in words for word in left)


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_reference_answer_is_touched(name: str) -> None:
    for task in task_rows(name):
        before, after, instruction = task["before"], task["reference"], task["instruction"]
        assert without_echo(task["path"], before, after, instruction) == (after, ""), task["id"]
        source = SourceFile(Path(task["path"]), task["path"], before.encode())
        assert bad_import(source, after, instruction) == "", task["id"]


@pytest.mark.parametrize(
    ("instruction", "leaves"),
    [
        ("In a.py, change `f`. Leave every other line of the file as it is.", True),
        ("keep the rest as it is", True),
        ("Keep all other functions.", True),
        ("rename x; change nothing else", True),
        ("do not touch anything else", True),
        ("don't change the other methods", True),
        ("Nothing else may change.", True),
        ("fix the bug in f", False),
        ("leave early when x is None", False),
        ("keep the other argument too? no: change it", True),
        ("return something else", False),
    ],
)
def test_an_instruction_may_say_that_the_rest_stays(instruction: str, leaves: bool) -> None:
    assert leaves_the_rest(instruction) is leaves


def test_an_answer_that_goes_beyond_its_definition_is_refused_where_the_rest_is_to_stay() -> None:
    text = "import re\n\n\ndef f(x):\n    return x\n\n\n" + "".join(f"a_{n} = {n}\n" for n in range(120))
    source = SourceFile(Path("a.py"), "a.py", text.encode())
    region = next(d for d in definitions("python", text) or [] if d.name == "f")
    answer = Attempt(reply=Reply("closed", "import math\n\ndef f(x):\n    return math.floor(x)\n"))
    verdict = judge(Ask(source, "let `f` round down. Leave every other line as it is.", region), answer)
    assert verdict.patch is None and verdict.reason == "the answer also changes lines outside of f, which were to stay"
    freely = judge(Ask(source, "let `f` round down", region), answer)
    assert freely.patch is not None and freely.patch.text.startswith("import re\nimport math\n")
