"""Guards and syntax: what they refuse, and that they let the reference answers of all tasks through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks import task_rows
from vivace.agent.applier import make_patch
from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.guards import lost_code
from vivace.agent.regions import LONG_FILE, named
from vivace.agent.reply import Reply, ReplyParser
from vivace.agent.syntax import compare
from vivace.agent.verdict import Verdict, judge
from vivace.agent.workspace import SourceFile


def source(text: str, name: str = "a.py") -> SourceFile:
    return SourceFile(Path(name), name, text.encode())


def lost(before: str, after: str, instruction: str = "fix it", name: str = "a.py") -> str:
    return lost_code(make_patch(source(before, name), after), instruction)


def answered(ask: Ask, code: str) -> Verdict:
    return judge(ask, Attempt(reply=Reply("closed", code)))


BODY = "def f(x):\n    a = 1\n    b = 2\n    return a + b + x\n\n\ndef g():\n    return 1\n"


@pytest.mark.parametrize(
    "line",
    [
        "    # ... existing code ...",
        "    # rest of the code unchanged",
        "    # ...",
        "    # The rest of the function remains the same",
        "    # unchanged",
        "    # other methods here",
        "    # your code here",
        "    ...",
        "    # … (omitted)",
    ],
)
def test_a_line_that_stands_for_code_is_refused(line: str) -> None:
    after = BODY.replace("    a = 1\n    b = 2\n    return a + b + x\n", line + "\n")
    assert "leaves code out" in lost(BODY, after)
    assert not lost(after, after + "x = 1\n"), "it was there before"


def test_a_line_comment_of_other_languages_is_refused() -> None:
    assert lost("int f() {\n  a();\n  b();\n}\n", "int f() {\n  // ... existing code ...\n}\n", name="a.c")
    assert lost("a\nb\nc\n", "<!-- rest of the file unchanged -->\n", name="a.html")


@pytest.mark.parametrize(
    "line",
    [
        "# the rest of the items are sorted",
        "# keep the same order",
        "x = ...",
        "# here be dragons",
        "# returns other code",
    ],
)
def test_honest_comments_pass(line: str) -> None:
    assert not lost(BODY, line + "\n" + BODY)


def test_an_ellipsis_as_a_new_body_passes() -> None:
    assert not lost(BODY, BODY + "\n\nclass P(Protocol):\n    def h(self) -> int:\n        ...\n")


def test_definitions_may_not_vanish_unasked() -> None:
    without = BODY.split("\n\n\n")[0] + "\n"
    assert "g would be lost" in lost(BODY, without)
    assert not lost(BODY, without, "delete the function g")
    assert not lost(BODY, BODY.replace("def g", "def h"), "use a better name")
    klass = "class A:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n"
    assert "A.g would be lost" in lost(klass, klass.split("\n\n")[0] + "\n")


def test_a_rename_that_nobody_asked_for_is_a_loss() -> None:
    renamed = BODY.replace("def g", "def count_h")
    assert "g would be lost" in lost(BODY, renamed, "count the words")
    for asked in ("rename it", "use a better name", "it shall be count_h", "Refactor it"):
        assert not lost(BODY, renamed, asked)


def test_an_import_that_is_still_used_may_not_go() -> None:
    old = "import math\nfrom a import b as c\n\n\ndef f(x):\n    return math.pi + c(x)\n"
    assert "import of math" in lost(old, old.replace("import math\n", ""))
    assert "import of c" in lost(old, old.replace("from a import b as c\n", ""))
    assert not lost(old, old.replace("import math\n", "").replace("math.pi", "3"))
    assert not lost(old, old.replace("import math\n", "").replace("def f(x)", "def f(x, math)"))
    assert not lost(old, old.replace("from a import b as c", "from b import c"))


def test_definitions_of_other_languages_count_too() -> None:
    go = "package m\n\nfunc A() {}\n\nfunc B() {}\n"
    assert "B would be lost" in lost(go, "package m\n\nfunc A() {}\n", name="a.go")


def test_sizes_beyond_reason_are_refused() -> None:
    long = "".join(f"x{n} = {n}\n" for n in range(100))
    assert "shrink" in lost(long, "x0 = 0\n")
    assert "empty" in lost("x = 1\n", "")
    assert "grow" in lost(long, long + "".join(f"y{n} = {n}\n" for n in range(300)))
    assert "repeats" in lost("x = 1\n", "x = 1\n" + "print('again')\n" * 60)
    assert not lost("x = 1\n", "x = 1\n" + "".join(f"y{n} = {n}\n" for n in range(100)))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.py", "x = 1\n", "x = = 1\n"),
        ("a.js", "let x = 1;\n", "let x = ;{\n"),
        ("a.ts", "let x: number = 1;\n", "let x: = {\n"),
        ("a.tsx", "const a = <p>x</p>;\n", "const a = <p>x</q>;(\n"),
        ("a.go", "package m\n", "package m\nfunc {\n"),
        ("a.rs", "fn f() {}\n", "fn f( {}\n"),
        ("a.java", "class A {}\n", "class A {\n"),
        ("a.c", "int f(void) { return 1; }\n", "int f(void) { return 1; \n"),
        ("a.h", "class A { public: int f(); };\n", "class A { public: int f(; };\n"),
        ("a.cpp", "class A {};\n", "class A {;\n"),
        ("a.json", '{"a": 1}\n', '{"a": 1,}\n'),
        ("a.sh", "if true; then echo; fi\n", "if true; then echo\n"),
        ("a.toml", "a = 1\n", "a = \n"),
        ("tool", "#!/usr/bin/env python3\nx = 1\n", "#!/usr/bin/env python3\nx =\n"),
    ],
)
def test_syntax_is_judged_only_when_it_was_sound_before(name: str, good: str, bad: str) -> None:
    assert compare(name, good, good).fault == ""
    assert compare(name, good, bad).fault
    broken = compare(name, bad, bad)
    assert not broken.checked and not broken.fault and "before" in broken.note


def test_an_unknown_language_is_said_to_be_unchecked() -> None:
    assert compare("a.xyz", "x", "y").note == "no syntax check for this kind of file"


def test_warnings_of_the_compiler_stay_silent(recwarn: pytest.WarningsRecorder) -> None:
    assert compare("a.py", "x = 1\n", "x = '\\d' is 1\n").checked
    assert not recwarn.list


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_reference_answer_is_refused(name: str) -> None:
    refused = []
    for task in task_rows(name):
        ask = Ask(source(task["before"], task["path"]), task["instruction"])
        verdict = answered(ask, task["reference"])
        if not verdict.patch:
            refused.append((task["id"], verdict.reason))
        assert answered(ask, task["before"]).unchanged
        parser = ReplyParser(ask.fence)
        parser.feed(f"{ask.fence}python\n{task['reference']}{ask.fence}")
        assert parser.finish() == Reply("closed", task["reference"]), task["id"]
    assert refused == []


def test_long_tasks_are_edited_in_the_right_region_and_nowhere_else() -> None:
    for task in task_rows("long_edit"):
        file = source(task["before"], task["path"])
        region = named(file, task["instruction"])
        if region is None:
            continue
        first, last = task["region"]["start_line"] - 1, task["region"]["end_line"]
        assert first <= region.start and region.end <= last, task["id"]
        ask = Ask(file, task["instruction"], region)
        assert answered(ask, ask.shown).unchanged, task["id"]
        assert len(file.lines) <= LONG_FILE or len(ask.prompt) < len(file.text)


MANY = "".join(f"def f{n}(x):\n    y = x + {n}\n    return y\n\n\n" for n in range(12))


@pytest.mark.parametrize(
    "instruction",
    [
        "Rename the method _unify_values to _merge_values everywhere, please",
        "Extract the number 1970 into a constant _EPOCH_YEAR.",
        "Replace the number by a constant",
        "Convert the strings to f-strings",
        "Use y instead of z",
        "Fix the bug in remove_duplicates",
        "Fix `delete` and make simplify(x) faster",
        "Sort it without removing anything",
        "Do not delete any functions, but sort them",
        "Split the text at commas",
        "Strip the text",
        "Remove the trailing comma",
        "",
    ],
)
def test_words_that_do_not_speak_of_removing_code_open_no_guard(instruction: str) -> None:
    half = MANY[: MANY.index("def f6")]
    assert "would be lost" in lost(MANY + MANY.replace("def f", "def g"), MANY + half, instruction + " now")
    long = "".join(f"x{n} = {n}\n" for n in range(100))
    if "Remove" not in instruction:
        assert "shrink" in lost(long, long[: len(long) // 2], instruction)


@pytest.mark.parametrize(
    "instruction",
    [
        "Remove the unused functions",
        "Delete half of the helpers",
        "Merge the functions that are alike",
        "Refactor it",
        "Simplify the module",
        "Get rid of the dead code",
    ],
)
def test_words_that_do_open_them(instruction: str) -> None:
    assert not lost(MANY, MANY[: MANY.index("def f6")], instruction)
    assert "would be lost" in lost(MANY, MANY[: MANY.index("def f4")], instruction), "more than half"


def test_what_is_converted_may_give_way_to_as_much() -> None:
    old = "class T:\n    def a(self):\n        pass\n\n    def b(self):\n        pass\n"
    new = "def a():\n    pass\n\n\ndef b():\n    pass\n"
    assert not lost(old, new, "Convert the tests to plain functions")
    assert "T would be lost" in lost(old, new, "Fix the tests")


def test_a_minified_file_shrinks_by_characters() -> None:
    line = "".join(f"a.b{n}=function(x){{return x+{n}}};" for n in range(200))
    for name in ("a.js", "a.css", "a.txt"):
        assert "characters" in lost(f"{line}\n", f"{line[: len(line) // 3]}\n", name=name)
        assert "characters" in lost(f"{line}\n", f"{line * 4}\n", name=name)
        assert not lost(f"{line}\n", f"{line[: len(line) * 3 // 4]}\n", name=name)
        assert not lost(f"{line}\n", f"{line[: len(line) // 3]}\n", "remove most of it", name)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.go", "// Package m\npackage m\n\nfunc f() {}\n", "package m\n\n// Package m\npackage m\n\nfunc f() {}\n"),
        ("a.go", "package m\n\nfunc f() {}\n", "func f() {}\n"),
        ("a.go", 'package m\n\nimport "os"\n\nvar x = 1\n', 'package m\n\nvar x = 1\n\nimport "os"\n'),
        ("A.java", "package m;\n\nclass A {}\n", "package m;\n\npackage m;\n\nclass A {}\n"),
        ("A.java", "import m.B;\n\nclass A {}\n", "class A {}\n\nimport m.B;\n"),
        ("a.json", '{"a": 1, "b": {"a": 2}}\n', '{"a": 1, "b": {"a": 2, "a": 3}}\n'),
    ],
)
def test_what_the_grammars_let_through_is_refused_all_the_same(name: str, good: str, bad: str) -> None:
    assert compare(name, good, good).fault == "" and compare(name, good, good).checked
    assert compare(name, good, bad).fault


def test_a_fragment_without_a_package_clause_is_checked_as_before() -> None:
    assert compare("a.go", "func f() {}\n", "func g() {}\n").checked
    assert compare("a.go", "func f() {}\n", "func {\n").fault


@pytest.mark.parametrize(
    ("name", "broken", "good"),
    [
        ("a.py", "def f(:\n", "def f():\n    pass\n"),
        ("a.json", '{"a": 1,}\n', '{"a": 1}\n'),
        ("a.toml", "a = \n", "a = 1\n"),
        ("a.go", "package m\nfunc {\n", "package m\n"),
        ("a.c", "int f(void) {\n", "int f(void) {}\n"),
        ("a.sh", "if true; then echo\n", "if true; then echo; fi\n"),
    ],
)
def test_what_the_edit_has_mended_is_not_told_to_be_broken(name: str, broken: str, good: str) -> None:
    mended = compare(name, broken, good)
    assert (mended.checked, mended.fault, mended.note) == (True, "", "")
    still = compare(name, broken, broken)
    assert not still.checked and still.note.startswith("does not parse, and did not before the edit")
