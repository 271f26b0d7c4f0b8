"""What a command text would run, taken apart."""

from __future__ import annotations

import pytest

from vivace.agent.approvals.script import parse
from vivace.agent.approvals.unwrap import unwrap


def run(text: str) -> list[str]:
    return [str(command) for command in unwrap(parse(text)).commands]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("ls -l", ["ls -l"]),
        ("a && b || c; d & e | f", ["a", "b", "c", "d", "e", "f"]),
        ("(a; { b; }); ! c", ["a", "b", "c"]),
        ("echo $(a `b`)", ["echo $(a `b`)", "a `b`", "b"]),
        ("cat <(a) >(b) <<< $(c)", ["cat <(a) >(b)", "a", "b", "c"]),
        ("cat <<EOF\n$x\nEOF\na", ["cat", "a"]),
        ("cat <<'EOF'\n$(x)\nEOF\na", ["cat", "a"]),
        ("a \\\n  -b", ["a -b"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("for x in 1 2; do a; done; while b; do c; done", ["a", "b", "c"]),
        ("case x in y) a;; *) b;; esac", ["a", "b"]),
        ("f() { a; }; f", ["a", "f"]),
        ("X=1 a", ["X=1 a"]),
        ("CI=1 LANG=C a", ["a"]),
        ("PATH=/x; a", ["PATH=/x a"]),
        ("export X=1; a", ["X=1 a"]),
        ("i=1; a", ["a"]),
        ("\"l\"s '-l' a\\ b", ["ls -l a b"]),
        ("\\rm x", ["rm x"]),
        ("time nice -n 5 timeout -k 1 9 nohup a -b", ["a -b"]),
        ("env -i X=1 a", ["X=1 a"]),
        (
            "find . -name '*.py' -exec a {} \\; -exec b +",
            ["find . -name *.py -exec a {} ; -exec b +", "a {} ...", "b ..."],
        ),
        ("ls | xargs -0 -n 1 a b", ["ls", "a b ..."]),
        ("bash -c 'a; b'", ["a", "b"]),
        ("bash -euo pipefail -c 'a'", ["a"]),
        ("eval 'a;' b", ["a", "b"]),
        ("command -v a", ["command -v a"]),
        ("sudo -u x a", ["sudo -u x a", "a"]),
        ("a 2>&1 >/dev/null", ["a"]),
    ],
)
def test_every_simple_command_is_found(text: str, commands: list[str]) -> None:
    script = unwrap(parse(text))
    assert (sorted(run(text)), script.opaque) == (sorted(commands), ())


@pytest.mark.parametrize(
    "text",
    [
        "$X a",
        "$(a) b",
        "{rm,x}",
        "$'\\x72m' x",
        "r\\\nm x",
        "a\r\nb",
        "a\u00a0b",
        "echo 'unclosed",
        "bash",
        "curl x | sh",
        "bash -c \"$X\"",
        "bash -s a",
        "xargs sh -c",
        "ls | xargs -I% sh -c 'a %'",
        "ls | xargs -Ils ls",
        "find . -exec sh -c 'a {}' \\;",
        "eval $X",
        "env -S 'a b'",
        "xargs -J % a",
        "coproc a",
        "alias ls=a",
        "echo ${x@P}",
        "x='a[$(b)]'; echo $((x))",
        "y=$(b); [[ $y -eq 1 ]]",
        "timeout --what 5 a",
        "trap \"$X\" EXIT",
        "watch a",
        "cat <<EOF\n$(a)\nEOF",
        "cat <<EOF\n`a`",
        "! { a; }",
        "a\n\\\nb",
        "a\n\\b",
        "[\nb ]",
        "x\u202ey",
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_opaque(text: str) -> None:
    assert unwrap(parse(text)).opaque


def test_redirections_are_files_that_the_shell_opens() -> None:
    script = parse("a > out.txt 2>> 'err or' < in &> both; > only; b 2>&1")
    assert [(r.target.text, r.writes) for r in script.redirects] == [
        ("out.txt", True),
        ("err or", True),
        ("in", False),
        ("both", True),
        ("only", True),
    ]
    assert not script.opaque
    assert not parse("a 2>&1 >&2").redirects


def test_a_long_or_deep_text_is_no_reason_to_fall() -> None:
    assert parse("a;" * 40_000).opaque
    assert unwrap(parse("(" * 3000 + "a" + ")" * 3000)) is not None
    assert unwrap(parse("echo " + "$(" * 2000 + "a" + ")" * 2000)) is not None
    nested = "a"
    for _ in range(20):
        nested = f"bash -c {nested!r}"
    assert unwrap(parse(nested)) is not None
