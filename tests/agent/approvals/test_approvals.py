"""Modes, scopes, rules and what is remembered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.approvals.actions import (
    Action,
    Answer,
    CallTool,
    Decision,
    Mode,
    ReadFile,
    RunCommand,
    Scope,
    WriteFile,
    nobody,
)
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.approvals.book import Book, CommandRule, PathRule, Rules, ToolRule, book_path, encode
from vivace.errors import VivaceError


def verdict(root: Path, text: str, mode: Mode = "ask", *, sandboxed: bool = True, network: bool = False) -> str:
    return Approvals(root, mode).decide(RunCommand(text, sandboxed=sandboxed, network=network)).verdict


READS = [
    "ls -la src",
    "cat a.py | head -20 | wc -l",
    "git --no-pager log --oneline -5",
    "git status && git diff HEAD~1 -- a.py",
    "grep -rn 'def f' src --include=*.py",
    "rg -n foo src",
    "find . -name '*.py' -not -path './x/*'",
    "cd src && cat a.py",
    "wc -l *.py",
    "sort a.txt | uniq -c | sort -rn",
    "for f in 1 2; do echo $f; done",
    "cat a.py > /dev/null 2>&1",
    "git branch --show-current",
]
CHANGES = [
    "touch x",
    "echo hi > x",
    "sed -i s/a/b/ x",
    "sort -o x x",
    "sort *",
    "uniq a b",
    "find . -fprint x",
    "git commit -m x",
    "git diff --output=x",
    "git grep -O a",
    "git branch new",
    "git -c core.pager=x log",
    "rg --pre ./x a",
    "date -s 1",
    "X=1 ls",
    "./ls",
    "cat /etc/passwd",
    "cat ../x",
    "grep -f/etc/passwd x",
    "cat ~/x",
    "cat .env",
    "head $x",
    "cat $(echo /etc/passwd)",
    "cd / && cat etc/passwd",
    "false && cd src; cat a.py",
    "python x.py",
]


@pytest.mark.parametrize("text", READS)
@pytest.mark.parametrize("mode", ["read-only", "ask", "auto", "full"])
def test_reading_passes_in_every_mode(tmp_path: Path, text: str, mode: Mode) -> None:
    assert verdict(tmp_path.resolve(), text, mode, sandboxed=False) == "allow"


@pytest.mark.parametrize("text", CHANGES)
def test_what_may_change_or_tell_something_asks(tmp_path: Path, text: str) -> None:
    assert verdict(tmp_path.resolve(), text) == "ask"


@pytest.mark.parametrize("text", [*CHANGES, "rm x", "$X y", "./ls > /dev/null", "cat a.py > b.py", "ls; touch x"])
def test_read_only_denies_what_may_change_something_whatever_the_rules_say(tmp_path: Path, text: str) -> None:
    first = text.split()[0]
    book = Book()
    for rule in (CommandRule((first,)), CommandRule(("touch",)), PathRule("**"), PathRule("**", access="read")):
        book.add(rule)
    approvals = Approvals(tmp_path.resolve(), "read-only", book)
    for network in (False, True):
        decision = approvals.decide(RunCommand(text, sandboxed=True, network=network))
        assert decision.verdict == "deny" and all("only reads" in need.reason for need in decision.needs)
    approvals.grant(RunCommand(text, sandboxed=True), Decision("ask"), "session")
    assert approvals.decide(RunCommand(text, sandboxed=True)).verdict == "deny"


def test_read_only_denies_writing_and_asks_for_secrets_and_for_tools_that_only_read(tmp_path: Path) -> None:
    book = Book()
    for rule in (CommandRule(("git",), "deny"), PathRule("**"), ToolRule("tickets/*")):
        book.add(rule)
    approvals = Approvals(tmp_path.resolve(), "read-only", book)
    wanted: list[tuple[Action, str]] = [
        (WriteFile("a.py"), "deny"),
        (ReadFile("a.py"), "allow"),
        (ReadFile(".env"), "ask"),
        (RunCommand("ls", sandboxed=True, network=True), "deny"),
        (RunCommand("cat < a.py", sandboxed=True), "allow"),
        (RunCommand("cat < /etc/passwd", sandboxed=True), "ask"),
        (CallTool("tickets", "close"), "deny"),
        (CallTool("tickets", "search", read_only=True), "allow"),
        (CallTool("docs", "search", read_only=True), "ask"),
        (CallTool("docs", "start:0123:./server"), "deny"),
    ]
    assert [(action, approvals.decide(action).verdict) for action, _ in wanted] == wanted
    told = {}
    for action in (WriteFile("a.py"), RunCommand("git status")):
        with pytest.raises(VivaceError) as refused:
            asyncio.run(approvals.admit(action, nobody))
        told[type(action)] = refused.value
    assert told[WriteFile].message == "not done (writes a.py: this conversation only reads)"
    assert "Say what is to be changed" in told[WriteFile].hint
    assert told[RunCommand].message == "forbidden by a rule (git status: a rule forbids git)"


def test_a_link_out_of_the_workspace_is_no_file_of_it(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "root"
    root.mkdir()
    (root / "out").symlink_to("/etc/passwd")
    (root / "in").symlink_to("real")
    assert (verdict(root, "cat in"), verdict(root, "cat out")) == ("allow", "ask")
    assert verdict(root, "echo x > out", "auto") == "ask"


def test_auto_lets_the_sandbox_decide_and_full_lets_go(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for text in ("python x.py", "make all", "echo x > y", "X=1 ./run", "npm ci | tee log"):
        assert verdict(root, text, "auto") == "allow"
        assert verdict(root, text, "full", sandboxed=False) == "allow"
    assert verdict(root, "python x.py", "auto", sandboxed=False) == "ask"
    assert verdict(root, "npm ci", "auto", network=True) == "ask"
    assert verdict(root, "echo x > /etc/x", "auto") == "ask"
    assert verdict(root, "echo x > .git/hooks/pre-commit", "full") == "ask"
    assert verdict(root, "$X y", "full") == "ask"


DESTROYS = [
    "rm x",
    "rm -rf .",
    "/bin/rm x",
    "git reset --hard",
    "git reset --ha HEAD~1",
    "git checkout -- .",
    "git checkout .",
    "git checkout a.py",
    "git checkout -f main",
    "git switch --discard-changes main",
    "git restore a.py",
    "git clean -fdx",
    "git stash",
    "git stash drop",
    "git branch -D x",
    "git push --force-with-lease",
    "git push origin :x",
    "git push origin +main",
    "git -C sub reset --hard",
    "git rebase main",
    "git yolo",
    "git $x",
    "git worktree remove x",
    "git commit --amend",
    "find . -name x -delete",
    "find . -exec rm {} +",
    "ls | xargs rm",
    "sudo ls",
    "dd if=a of=b",
    "chmod -R 777 .",
    "npm publish",
    "docker system prune",
    "pkill python",
]
SPARES = [
    "git checkout main",
    "git checkout -b new",
    "git switch main",
    "git restore --staged a.py",
    "git reset",
    "git reset HEAD~1",
    "git stash list",
    "git branch -a",
    "git push origin main",
    "git commit -m 'rm -rf everything'",
    "git clean -n",
    "echo rm -rf /",
    "git log --grep=reset --all",
    "chmod +x run.sh",
    "npm test",
]


@pytest.mark.parametrize("text", DESTROYS)
def test_complaint_14_what_destroys_needs_its_own_word(tmp_path: Path, text: str) -> None:
    made = Approvals(tmp_path.resolve(), "full")
    for name in ("git", "rm", "find", "npm"):
        made.book.add(CommandRule((name,)))
    assert made.decide(RunCommand(text, sandboxed=True)).verdict == "ask"


@pytest.mark.parametrize("text", SPARES)
def test_what_only_looks_like_it_does_not(tmp_path: Path, text: str) -> None:
    assert verdict(tmp_path.resolve(), text, "full") == "allow"


def grant(made: Approvals, action: Action, scope: Scope) -> Decision:
    decision = made.decide(action)
    assert decision.verdict == "ask"
    made.grant(action, decision, scope)
    return decision


def test_complaint_18_one_answer_is_enough_whatever_stands_before_the_command(tmp_path: Path) -> None:
    made = Approvals(tmp_path.resolve(), "ask", Book(tmp_path / "rules.toml"))
    assert grant(made, RunCommand("npm run test"), "prefix").needs[0].rule == "npm run test ..."
    for text in (
        "npm run test",
        "CI=1 npm run test -- -k x",
        "cd src && npm run test 2>&1 | tail -5",
        "timeout 60 npm run test",
    ):
        assert made.decide(RunCommand(text)).verdict == "allow", text
    for text in (
        "npm run tests",
        "npm run",
        "npm run deploy",
        "X=1 npm run test",
        "npm run test > x",
        "npm run test $(x)",
    ):
        assert made.decide(RunCommand(text)).verdict == "ask", text
    again = Approvals(tmp_path.resolve(), "ask", Book(tmp_path / "rules.toml"))
    assert again.decide(RunCommand("npm run test -- a")).verdict == "allow"


def test_once_is_once_and_session_is_the_very_same(tmp_path: Path) -> None:
    made = Approvals(tmp_path.resolve())
    grant(made, RunCommand("make x"), "once")
    grant(made, RunCommand("make x"), "session")
    assert made.decide(RunCommand("make x")).verdict == "allow"
    assert made.decide(RunCommand("ls && make x")).verdict == "allow"
    assert made.decide(RunCommand("make x y")).verdict == "ask"
    grant(made, RunCommand("FOO=1 make x"), "session")
    assert made.decide(RunCommand("FOO=1 make x")).verdict == "allow"
    assert made.decide(RunCommand("FOO=2 make x")).verdict == "ask"
    grant(made, RunCommand("echo a > f"), "session")
    assert made.decide(RunCommand("echo b > f")).verdict == "allow"
    assert made.decide(RunCommand("echo b > g")).verdict == "ask"
    assert Approvals(tmp_path.resolve(), book=made.book).decide(RunCommand("make x")).verdict == "ask"


def test_destruction_is_never_approved_by_prefix(tmp_path: Path) -> None:
    made = Approvals(tmp_path.resolve())
    assert "prefix" not in grant(made, RunCommand("rm -r x"), "prefix").needs[0].scopes
    assert made.decide(RunCommand("rm -r x")).verdict == "allow"
    assert made.decide(RunCommand("rm -r y")).verdict == "ask"
    assert made.book.rules == Rules()


@pytest.mark.parametrize(
    "text", ["python -c 'x'", "node -e x", "bash x.sh", "ssh h x", "sed -n p x", "cp a b", "awk x", "git -C x add ."]
)
def test_no_rule_is_offered_that_would_allow_anything(tmp_path: Path, text: str) -> None:
    (need,) = Approvals(tmp_path.resolve()).decide(RunCommand(text)).needs
    assert need.scopes == ("once", "session")


def test_files_by_mode_path_and_name(tmp_path: Path) -> None:
    made = Approvals(tmp_path.resolve(), "ask")
    assert made.decide(ReadFile("a.py")).verdict == "allow"
    grant(made, WriteFile("docs/deep/a.md"), "path")
    assert made.decide(WriteFile("docs/deep/b/c.md")).verdict == "allow"
    assert made.decide(WriteFile("docs/b.md")).verdict == "ask"
    assert made.decide(RunCommand("echo x > docs/deep/x")).verdict == "allow"
    for path in (".env", "conf/prod.env", "deploy/id_rsa", ".aws/config", "x.pem"):
        assert made.decide(ReadFile(path)).verdict == "ask"
        assert Approvals(tmp_path.resolve(), "full").decide(ReadFile(path)).verdict == "ask"
    assert made.decide(ReadFile(".env.example")).verdict == "allow"
    auto = Approvals(tmp_path.resolve(), "auto")
    assert (auto.decide(WriteFile("x")).verdict, auto.decide(WriteFile(".git/config")).verdict) == ("allow", "ask")


def test_what_is_forbidden_is_not_even_asked(tmp_path: Path) -> None:
    made = Approvals(tmp_path.resolve(), "full")
    made.book.add(CommandRule(("docker",), "deny"))
    made.book.add(PathRule("vendor/**", "deny"))
    made.book.add(ToolRule("web/*", "deny"))
    assert made.decide(RunCommand("ls && /usr/bin/docker ps")).verdict == "deny"
    assert made.decide(WriteFile("vendor/a/b")).verdict == "deny"
    assert made.decide(CallTool("web", "fetch")).verdict == "deny"

    async def never(action: Action, decision: Decision) -> Answer:
        raise AssertionError("asked")

    with pytest.raises(VivaceError, match="forbidden by a rule"):
        asyncio.run(made.admit(WriteFile("vendor/x"), never))


def test_a_refusal_carries_the_word_of_the_user(tmp_path: Path) -> None:
    async def no(action: Action, decision: Decision) -> Answer:
        return Answer(allow=False, note="use make instead")

    with pytest.raises(VivaceError) as caught:
        asyncio.run(Approvals(tmp_path.resolve()).admit(RunCommand("ninja"), no))
    assert (caught.value.code, caught.value.hint) == ("not_approved", "use make instead")


def test_tools_of_servers(tmp_path: Path) -> None:
    made = Approvals(tmp_path.resolve(), "auto", Book(tmp_path / "r.toml"))
    grant(made, CallTool("github", "search", read_only=True), "prefix")
    assert made.decide(CallTool("github", "search")).verdict == "allow"
    assert made.decide(CallTool("github", "merge")).verdict == "ask"
    assert Book(tmp_path / "r.toml").rules.tool == (ToolRule("github/search"),)


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(prefix=st.lists(words, min_size=1, max_size=3), glob=words)
def test_the_book_reads_what_it_wrote(tmp_path_factory: pytest.TempPathFactory, prefix: list[str], glob: str) -> None:
    file = tmp_path_factory.getbasetemp() / "book.toml"
    file.unlink(missing_ok=True)
    book = Book(file)
    book.add(CommandRule(tuple(prefix), "deny", env=("A=1",)))
    book.add(PathRule(glob, access="read"))
    assert (
        Book(file).rules
        == book.rules
        == Rules((CommandRule(tuple(prefix), "deny", ("A=1",)),), (PathRule(glob, access="read"),))
    )


def test_a_book_that_cannot_be_read_allows_nothing(tmp_path: Path) -> None:
    file = book_path(tmp_path, tmp_path / "work")
    assert file.parent == tmp_path / "approvals" and file.name.startswith("work-")
    file.parent.mkdir()
    for text in ("[[command]]\nprefx = ['x']\n", "[[", encode(Rules()).replace("# ", "")):
        file.write_text(text)
        with pytest.raises(VivaceError, match="cannot be read"):
            Book(file)


def test_two_conversations_share_the_book(tmp_path: Path) -> None:
    one, two = Book(tmp_path / "b.toml"), Book(tmp_path / "b.toml")
    one.add(CommandRule(("a",)))
    two.add(CommandRule(("b",)))
    assert [rule.prefix for rule in Book(tmp_path / "b.toml").rules.command] == [("a",), ("b",)]
