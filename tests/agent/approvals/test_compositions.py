"""No composition of approved commands with one that is not approved passes: told by the parser, and by bash itself."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from vivace.agent.approvals.actions import RunCommand
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.approvals.book import CommandRule

APPROVED = ["ls", "ls -l src", "git status", "npm run test", "npm run test -- --watch", "echo hi", "make lint"]
UNAPPROVED = [
    "evil",
    "evil --now",
    "npm run deploy",
    "./evil x",
    "make install",
    "rm -rf src",
    "git reset --hard",
    "npm",
]

ONE = [
    "( {} )", "{{ {}; }}", "! {}", "if {}; then :; fi", "while {}; do :; done", "for f in a b; do {}; done",
    "case a in a) {};; esac", "echo $( {})", 'echo "$( {})"', "echo `{}`", "cat <({})", "X_=$( {}) ls", "x=$( {})",
    "f() {{ {}; }}; f", "{} &", "{} 2>/dev/null", "{} 2>&1", "timeout 5 {}", "env A_=1 {}", "nice {}", "CI=1 {}",
    "echo | xargs {}", "find . -exec {} \\;", "cat <<E\n$( {})\nE", "echo a{{1,2}}$( {})", "time {}", "nohup {}",
    "[[ -n $( {}) ]]", "echo ${{x:-$( {})}}", "echo $(( $( {}) + 1 ))", "select x in a; do {}; done", "# x\n{}",
    "echo '#'; {}", "exec {}", "command {}", "trap '{}' EXIT", "until {}; do :; done", "echo \\\n&& {}",
]  # fmt: skip
TWO = [
    "{} && {}",
    "{} || {}",
    "{}; {}",
    "{} | {}",
    "{}\n{}",
    "{} & {}",
    "{} |& {}",
    "if {}; then {}; fi",
    "echo $( {}) <({})",
]


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(tempfile.gettempdir()).resolve()


def approvals(root: Path) -> Approvals:
    made = Approvals(root, "ask")
    for prefix in (("npm", "run", "test"), ("make", "lint")):
        made.book.add(CommandRule(prefix))
    return made


@st.composite
def composed(draw: st.DrawFn, leaves: list[str], depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(leaves))
    if draw(st.booleans()):
        inner = draw(composed(leaves, depth - 1))
        shape = draw(st.sampled_from([*ONE, "bash", "eval"]))
        if shape in ("bash", "eval"):
            return f"{'bash -c' if shape == 'bash' else 'eval'} {shlex.quote(inner)}"
        # Words of a command, not a list of them, stand behind a wrapper.
        wraps = shape.startswith(
            ("timeout", "env", "nice", "CI", "echo | xargs", "find", "nohup", "exec", "command", "trap")
        )
        # Backticks do not nest as they stand: the first one inside ends them.
        wraps = wraps or ("`" in shape and "`" in inner)
        return shape.format(draw(st.sampled_from(leaves)) if wraps else inner)
    left, right = draw(composed(leaves, depth - 1)), draw(composed(leaves, depth - 1))
    return draw(st.sampled_from(TWO)).format(left, right)


@given(text=composed(APPROVED, 2), bad=st.sampled_from(UNAPPROVED), shape=st.sampled_from(TWO), first=st.booleans())
@settings(max_examples=300, deadline=None)
def test_beside_approved_commands_an_unapproved_one_still_asks(
    root: Path, text: str, bad: str, shape: str, first: bool
) -> None:
    whole = shape.format(bad, text) if first else shape.format(text, bad)
    assert approvals(root).decide(RunCommand(whole)).verdict != "allow", whole


@given(text=composed([*UNAPPROVED], 3))
@settings(max_examples=250, deadline=None)
def test_inside_anything_an_unapproved_command_still_asks(root: Path, text: str) -> None:
    assert approvals(root).decide(RunCommand(text)).verdict != "allow", text


@pytest.mark.parametrize("mode", ["auto", "full"])
@given(text=composed(["rm -rf src", "git reset --hard", "git clean -fd"], 3))
@settings(max_examples=200, deadline=None)
def test_complaint_14_destruction_asks_in_every_mode_and_however_it_is_wrapped(
    root: Path, mode: str, text: str
) -> None:
    made = Approvals(root, mode)  # type: ignore[arg-type]
    made.book.add(CommandRule(("git",)))
    made.book.add(CommandRule(("rm",)))
    assert made.decide(RunCommand(text, sandboxed=True)).verdict == "ask", text


def test_compositions_of_approved_commands_alone_do_pass(root: Path) -> None:
    made = approvals(root)
    shapes = [
        "( {} )",
        "{{ {}; }}",
        "! {}",
        "if {}; then :; fi",
        "for f in a b; do {}; done",
        "echo $( {})",
        "echo `{}`",
    ]
    shapes += ["{} 2>/dev/null", "timeout 5 {}", "CI=1 {}", "nice -n 3 {}", "bash -c '{}'", "{} &", "time {}"]
    for shape in shapes:
        for command in APPROVED:
            assert made.decide(RunCommand(shape.format(command))).verdict == "allow", shape.format(command)
    for shape in ("{} && {}", "{}; {}", "{} | {}", "{}\n{}", "{} || {}"):
        for first in APPROVED:
            for second in APPROVED:
                assert made.decide(RunCommand(shape.format(first, second))).verdict == "allow"


TOKENS = [
    "ls", "evil", "echo", "cat", ";", "&&", "|", "||", "&", "\n", "$(", ")", "`", "'", '"', "\\", "{", "}", "(", "<(",
    "$", "${", "x", "=", "<<E", "E", "\nE\n", "<<<", ">", "/dev/null", "#", "!", "if", "then", "fi", "for", "in", "do",
    "done", "case", "esac", ";;", "while", "[[", "]]", "((", "))", "-eq", "1", "xargs", "env", "bash", "-c", "eval",
    "find", "-exec", "{}", "\\;", "time", "*", "?", "~", "$'", "\t", "  ", "function", "f", "()", "x=1", ",", "..", "^",
    "<<'E'", "<<-E", "|&", "&>", ">&2", "1>", "[", "]", "%", "@", "-n", "--", "-I", "trap", "EXIT", "coproc", "select",
    "\\\n", "'evil'", "$x", "${x}", "${x:-evil}", "e'v'il", "test", "printf", "-v", "x[`evil`]", "'x[`evil`]'", "read",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@given(tokens=st.lists(st.tuples(st.sampled_from(TOKENS), st.sampled_from(["", " ", " ", "\n"])), max_size=10))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_bash_agrees_what_is_allowed_never_runs_what_was_not(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[tuple[str, str]]
) -> None:
    text = "".join(token + gap for token, gap in tokens)
    assume("evil" in text)
    folder = tmp_path_factory.getbasetemp() / "soup"
    if not folder.exists():
        (folder / "bin").mkdir(parents=True)
        evil = folder / "bin" / "evil"
        evil.write_text(f"#!/bin/sh\necho > {folder}/ran\n")
        evil.chmod(0o755)
    if Approvals(folder.resolve(), "ask").decide(RunCommand(text)).verdict != "allow":
        return
    path = f"{folder}/bin:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", text], cwd=folder, env={"PATH": path}, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
    )
    assert not (folder / "ran").exists(), text
    assert [entry.name for entry in folder.iterdir()] == ["bin"], text
