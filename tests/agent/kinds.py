"""The kinds of edits that an applier has to get right to the byte, each a row: before, what changes, after."""

from __future__ import annotations

from dataclasses import dataclass

from tests.agent.rendering import DIALECTS, Change

BOM = b"\xef\xbb\xbf"
LONG = "".join(f"entry {n}: value {n * 7}\n" for n in range(1200)).encode()


@dataclass(frozen=True)
class Kind:
    """``before`` with ``changes`` made is ``after``; ``dialects`` in which the kind makes sense."""

    name: str
    before: bytes
    changes: tuple[Change, ...]
    after: bytes
    instruction: str = "do it"
    file: str = "f.txt"
    dialects: tuple[str, ...] = DIALECTS


def to(first: int, last: int, *new: str) -> Change:
    return Change(first, last, new)


KINDS = [
    Kind("one line", b"a\nb\nc\n", (to(1, 2, "B"),), b"a\nB\nc\n"),
    Kind("first line", b"a\nb\nc\n", (to(0, 1, "A"),), b"A\nb\nc\n"),
    Kind("last line", b"a\nb\nc\n", (to(2, 3, "C"),), b"a\nb\nC\n"),
    Kind("a range", b"a\nb\nc\nd\ne\n", (to(1, 4, "x", "y"),), b"a\nx\ny\ne\n"),
    Kind("a range that grows", b"a\nb\nc\n", (to(1, 2, "x", "y", "z"),), b"a\nx\ny\nz\nc\n"),
    Kind("a line is deleted", b"a\nb\nc\n", (to(1, 2),), b"a\nc\n", "delete b"),
    Kind("the first line is deleted", b"a\nb\nc\n", (to(0, 1),), b"b\nc\n", "delete a"),
    Kind("the last line is deleted", b"a\nb\nc\n", (to(2, 3),), b"a\nb\n", "delete c"),
    Kind("a range is deleted", b"a\nb\nc\nd\ne\n", (to(1, 4),), b"a\ne\n", "delete b to d"),
    Kind("blank lines around what is deleted stay", b"a\n\nb\n\nc\n", (to(2, 3),), b"a\n\n\nc\n", "delete b"),
    Kind("inserted after a line", b"a\nb\nc\n", (to(2, 2, "x", "y"),), b"a\nb\nx\ny\nc\n"),
    Kind("inserted at the beginning", b"a\nb\n", (to(0, 0, "x"),), b"x\na\nb\n"),
    Kind("inserted at the end", b"a\nb\n", (to(2, 2, "x"),), b"a\nb\nx\n"),
    Kind("inserted between equal lines", b"a\n{\n}\nb\n{\n}\n", (to(5, 5, "  x"),), b"a\n{\n}\nb\n{\n  x\n}\n"),
    Kind("a blank line is inserted", b"a\nb\n", (to(1, 1, ""),), b"a\n\nb\n"),
    Kind("the second of two equal lines", b"x = 1\nk\nx = 1\nm\n", (to(2, 3, "x = 2"),), b"x = 1\nk\nx = 2\nm\n"),
    Kind(
        "the second of two equal blocks",
        b"begin\n  v = 1\nend\nbegin\n  v = 1\nend\nlast\n",
        (to(4, 5, "  v = 2"),),
        b"begin\n  v = 1\nend\nbegin\n  v = 2\nend\nlast\n",
    ),
    Kind(
        "an import that stands twice",
        b"import a\nimport b\n\nif late:\n    import b\n",
        (to(4, 5, "    import c as b"),),
        b"import a\nimport b\n\nif late:\n    import c as b\n",
        file="a.py",
    ),
    Kind(
        "part of a line",
        b"port = 80, host = 'a', tries = 3\n",
        (to(0, 1, "port = 80, host = 'a', tries = 5"),),
        b"port = 80, host = 'a', tries = 5\n",
    ),
    Kind(
        "every occurrence",
        b"old\nx\nold y\nz old\n",
        (to(0, 1, "new"), to(2, 3, "new y"), to(3, 4, "z new")),
        b"new\nx\nnew y\nz new\n",
        "rename old to new everywhere",
    ),
    Kind(
        "five places at once",
        "".join(f"k{n} = {n}\n" for n in range(40)).encode(),
        tuple(to(n, n + 1, f"k{n} = {n * 100}") for n in (1, 9, 17, 25, 38)),
        "".join(f"k{n} = {n * 100 if n in (1, 9, 17, 25, 38) else n}\n" for n in range(40)).encode(),
    ),
    Kind("two places out of order", b"a\nb\nc\nd\n", (to(3, 4, "D"), to(0, 1, "A")), b"A\nb\nc\nD\n"),
    Kind("adjacent places", b"a\nb\nc\nd\n", (to(1, 2, "B"), to(2, 3, "C")), b"a\nB\nC\nd\n"),
    Kind("an insertion beside a replacement", b"a\nb\nc\n", (to(1, 1, "x"), to(1, 2, "B")), b"a\nx\nB\nc\n"),
    Kind("the replacement repeats the line above it", b"a\nb\nc\n", (to(1, 2, "a", "B"),), b"a\na\nB\nc\n"),
    Kind("a line is moved", b"a\nb\nc\nd\n", (to(0, 1), to(3, 3, "a")), b"b\nc\na\nd\n", "move a below c"),
    Kind("a block is copied", b"a\nb\n--\nc\n", (to(3, 3, "a", "b"),), b"a\nb\n--\na\nb\nc\n"),
    Kind("two lines change places", b"a\nb\nc\nd\n", (to(1, 3, "c", "b"),), b"a\nc\nb\nd\n", "swap b and c"),
    Kind("line ends of Windows", b"a\r\nb\r\nc\r\n", (to(1, 2, "B", "B2"),), b"a\r\nB\r\nB2\r\nc\r\n"),
    Kind("a byte order mark", BOM + b"a\nb\n", (to(0, 1, "A"),), BOM + b"A\nb\n"),
    Kind("a byte order mark before what is inserted", BOM + b"a\nb\n", (to(0, 0, "x"),), BOM + b"x\na\nb\n"),
    Kind("a byte order mark and Windows", BOM + b"a\r\nb\r\n", (to(1, 2, "B"),), BOM + b"a\r\nB\r\n"),
    Kind("no newline at the end", b"a\nb\nc", (to(1, 2, "B"),), b"a\nB\nc"),
    Kind("no newline at the end of what changes", b"a\nb", (to(1, 2, "B"),), b"a\nB"),
    Kind("no newline at the end, and more behind it", b"a\nb", (to(2, 2, "c"),), b"a\nb\nc"),
    Kind("no newline at the end of what is deleted", b"a\nb\nc", (to(2, 3),), b"a\nb", "delete c"),
    Kind("mixed line ends", b"a\r\nb\nc\r\nd\r\n", (to(2, 3, "C"),), b"a\r\nb\nC\r\nd\r\n"),
    Kind("mixed line ends where nothing is edited", b"a\nb\r\nc\nd\n", (to(3, 4, "D"),), b"a\nb\r\nc\nD\n"),
    Kind("tabs", b"if x:\n\ty = 1\n\t\tz\n", (to(1, 2, "\ty = 2"),), b"if x:\n\ty = 2\n\t\tz\n"),
    Kind("tabs and blanks", b"a:\n \tb\n\t c\n", (to(2, 3, "\t d"),), b"a:\n \tb\n\t d\n"),
    Kind("a trailing blank elsewhere", b"a  \nb\nc\t\n", (to(1, 2, "B"),), b"a  \nB\nc\t\n"),
    Kind("a trailing blank is the edit", b"a\nb  \nc\n", (to(1, 2, "b"),), b"a\nb\nc\n", "strip trailing white space"),
    Kind(
        "letters of all scripts",
        "naïve\n日本語\n🦀 crab\n".encode(),
        (to(1, 2, "日本人"),),
        "naïve\n日本人\n🦀 crab\n".encode(),
    ),
    Kind(
        "letters of two parts",
        "e\u0301te\ne\u0301ta\n".encode(),
        (to(1, 2, "e\u0301to"),),
        "e\u0301te\ne\u0301to\n".encode(),
    ),
    Kind("punctuation of typesetters", "“a” — b…\nc\n".encode(), (to(1, 2, "“c”"),), "“a” — b…\n“c”\n".encode()),
    Kind(
        "marks that join and turn",
        "a\u200db\n\u202ec\nd\n".encode(),
        (to(2, 3, "D"),),
        "a\u200db\n\u202ec\nD\n".encode(),
    ),
    Kind(
        "a form feed and a line separator are no line ends",
        b"a\x0cb\nc\xe2\x80\xa8d\ne\n",
        (to(2, 3, "E"),),
        b"a\x0cb\nc\xe2\x80\xa8d\nE\n",
    ),
    Kind("a very long line", b"x" * 60_000 + b"\nb\n", (to(1, 2, "B"),), b"x" * 60_000 + b"\nB\n"),
    Kind("inside a very long line", b"x" * 9000 + b"\nb\n", (to(0, 1, "x" * 8999 + "y"),), b"x" * 8999 + b"y\nb\n"),
    Kind(
        "a long file",
        LONG,
        (to(777, 778, "entry 777: none"),),
        LONG.replace(b"entry 777: value 5439", b"entry 777: none"),
    ),
    Kind("an empty file", b"", (to(0, 0, "a", "b"),), b"a\nb\n", dialects=("whole-file",)),
    Kind("a file of one line without an end", b"a", (to(0, 1, "b"),), b"b"),
    Kind(
        "fences in the file", b"# T\n```py\nx\n```\nend\n", (to(2, 3, "y"),), b"# T\n```py\ny\n```\nend\n", file="f.md"
    ),
    Kind(
        "marks of a conflict in the file",
        b"a\n<<<<<<< SEARCH\nours\n=======\ntheirs\n>>>>>>> REPLACE\nb\n",
        (to(2, 3, "OURS"), to(6, 7, "B")),
        b"a\n<<<<<<< SEARCH\nOURS\n=======\ntheirs\n>>>>>>> REPLACE\nB\n",
    ),
    Kind(
        "underlines of headings",
        b"Title\n=====\n\nb\n",
        (to(0, 2, "Titles", "======"),),
        b"Titles\n======\n\nb\n",
        file="f.rst",
    ),
    Kind(
        "marks of commands in the file",
        b"@@ end\n@@ -1 +1 @@\n-a\n+b\n",
        (to(3, 4, "+c"),),
        b"@@ end\n@@ -1 +1 @@\n-a\n+c\n",
        file="f.diff",
    ),
    Kind(
        "lines of a patch in the file",
        b"*** Begin Patch\n*** End Patch\nx\n",
        (to(2, 3, "y"),),
        b"*** Begin Patch\n*** End Patch\ny\n",
    ),
    Kind(
        "a comment is changed",
        b"# old\nx = 1\n",
        (to(0, 1, "# new"),),
        b"# new\nx = 1\n",
        "change the comment at the top",
        "a.py",
    ),
    Kind(
        "JSON", b'{\n  "a": 1,\n  "b": 2\n}\n', (to(2, 3, '  "b": 3'),), b'{\n  "a": 1,\n  "b": 3\n}\n', file="f.json"
    ),
    Kind("YAML", b"a:\n  - b\n  - c\n", (to(3, 3, "  - d"),), b"a:\n  - b\n  - c\n  - d\n", file="f.yaml"),
    Kind("Markdown's two blanks", b"a  \nb  \nc\n", (to(1, 2, "b"),), b"a  \nb\nc\n", file="f.md"),
    Kind("make's tabs", b"all:\n\tcc a.c\n", (to(1, 2, "\tcc -O2 a.c"),), b"all:\n\tcc -O2 a.c\n", file="Makefile"),
]
