"""Comments that an edit drops: told by the marks of the file's language, and by no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from vivace.agent.applier import make_patch
from vivace.agent.languages import BY_SUFFIX
from vivace.agent.tools.damage import comment_of, lost_comments
from vivace.agent.workspace import SourceFile


def gone(name: str, before: str, after: str) -> list[str]:
    return lost_comments(make_patch(SourceFile(Path(name), name, before.encode()), after))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.py", "# why"),
        ("a.sh", "# why"),
        ("a.toml", "# why"),
        ("a.yaml", "# why"),
        ("a.rb", "# why"),
        ("a.php", "# why"),
        ("a.php", "// why"),
        ("a.js", "// why"),
        ("a.go", "// why"),
        ("a.rs", "/// why"),
        ("a.java", "/** why */"),
        ("a.c", "/* why */"),
        ("a.c", " * why"),
        ("a.css", "/* why */"),
        ("a.sql", "-- why"),
        ("a.sql", "/* why */"),
        ("a.html", "<!-- why -->"),
        ("a.md", "<!-- why -->"),
    ],
)
def test_a_lost_comment_is_told(name: str, line: str) -> None:
    assert gone(name, f"{line}\nx = 1\n", "x = 2\n") == [line.strip()]
    assert gone(name, f"{line}\nx = 1\n", f"x = 2\n{line}\n") == [], "it only moved"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.css", "#main { color: red; }"),
        ("a.css", "//main"),
        ("a.md", "# Heading"),
        ("a.md", "* a point"),
        ("a.c", "#include <stdio.h>"),
        ("a.rs", "#[test]"),
        ("a.php", "#[Pure]"),
        ("a.go", "*p = 1"),
        ("a.py", '"""What it does."""'),
        ("a.py", "#!/usr/bin/env python3"),
        ("a.py", "-- 1"),
        ("a.py", "//1"),
        ("a.html", "# text"),
        ("a.json", "// no"),
        ("a.xyz", "# why"),
    ],
)
def test_what_is_no_comment_is_not_told(name: str, line: str) -> None:
    assert gone(name, f"{line}\nx = 1\n", "x = 2\n") == []


def test_every_language_has_its_marks() -> None:
    without = {language for language in BY_SUFFIX.values() if comment_of(language).pattern == "(?!)"}
    assert without == {"json"}
