"""May this be done? Decided from the mode, the rules of the workspace, and what was answered in this conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vivace.agent.approvals.actions import (
    Action,
    Answer,
    CallTool,
    Consult,
    Decision,
    Mode,
    Need,
    ReadFile,
    RunCommand,
    Scope,
    WriteFile,
)
from vivace.agent.approvals.book import Book, CommandRule, PathRule, ToolRule
from vivace.agent.approvals.danger import danger
from vivace.agent.approvals.harmless import only_reads
from vivace.agent.approvals.prefix import covers, prefix_of
from vivace.agent.approvals.script import Redirect, Script, Simple, parse
from vivace.agent.approvals.secrets import is_secret
from vivace.agent.approvals.unwrap import unwrap
from vivace.errors import VivaceError

_SINKS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero")
_ONLY_READS = "this conversation only reads"
_INSTEAD = "The user started it with the approvals read-only. Say what is to be changed instead; they can do it."


class Approvals:
    """One per conversation. ``root`` is the workspace (a real path); ``book`` holds what lasts."""

    def __init__(self, root: Path, mode: Mode = "ask", book: Book | None = None) -> None:
        self.root = root
        self.mode: Mode = mode
        self.book = book or Book()
        self._session: set[tuple[object, ...]] = set()

    async def admit(self, action: Action, consult: Consult) -> None:
        """Return when ``action`` may be done; ask where the user's word is needed.

        Raises :class:`VivaceError` (``not_approved``) with the reason, and with what the user said, if anything.
        """
        decision = self.decide(action)
        if decision.verdict == "allow":
            return
        answer = Answer(allow=False)
        if decision.verdict == "ask":
            answer = await consult(action, decision)
            if answer.allow:
                self.grant(action, decision, answer.scope)
                return
        what = "; ".join(f"{need.what}: {need.reason}" for need in decision.needs)
        if decision.verdict == "ask":
            raise VivaceError(f"not approved ({what})", hint=answer.note, code="not_approved")
        by_rule = any(not need.reason.startswith(_ONLY_READS) for need in decision.needs)
        word, hint = ("forbidden by a rule", "") if by_rule else ("not done", _INSTEAD)
        raise VivaceError(f"{word} ({what})", hint=hint, code="not_approved")

    def decide(self, action: Action) -> Decision:
        """What must be asked before ``action``. Changes nothing."""
        if isinstance(action, RunCommand):
            needs = list(self._command_needs(action))
        elif isinstance(action, CallTool):
            needs = list(self._tool_needs(action))
        else:
            needs = list(self._file_needs(action))
        if any(not need.scopes for need in needs):
            return Decision("deny", tuple(need for need in needs if not need.scopes))
        return Decision("ask", tuple(dict.fromkeys(needs))) if needs else Decision("allow")

    def grant(self, action: Action, decision: Decision, scope: Scope) -> None:
        """Remember an approval. A scope that is not offered for a need falls back to this conversation."""
        if scope == "once":
            return
        if isinstance(action, RunCommand):
            script = self._script(action)
            self._session |= {key for command in script.commands if (key := _key(command)) is not None}
            self._session |= {("text", action.text, action.cwd)} if script.opaque else set()
            self._session |= {("network", action.text)} if action.network or not action.sandboxed else set()
            self._session |= {("write", path) for path in self._written(action, script) if path}
            if scope == "prefix":
                # Only what was asked about: a rule for a command that passed anyway was nobody's wish.
                asked = {need.what for need in decision.needs}
                for command in script.commands:
                    if str(command) in asked and (prefix := prefix_of(command)):
                        self.book.add(CommandRule(prefix, env=command.env))
        elif isinstance(action, CallTool):
            name = f"{action.server}/{action.tool}"
            self._session.add(("tool", name))
            if scope == "prefix":
                self.book.add(ToolRule(name))
        else:
            access = "write" if isinstance(action, WriteFile) else "read"
            self._session.add((access, action.path))
            if scope == "path":
                self.book.add(PathRule(_glob_for(action), access="write" if access == "write" else "read"))

    def _script(self, action: RunCommand) -> Script:
        return unwrap(parse(action.text))

    @property
    def _frozen(self) -> bool:
        """Nothing may change: no rule and no answer of before lets more pass."""
        return self.mode == "read-only"

    def _command_needs(self, action: RunCommand) -> Iterator[Need]:
        script = self._script(action)
        if self._frozen:
            yield from self._reading_needs(action, script)
            return
        if ("text", action.text, action.cwd) not in self._session:
            for reason in script.opaque:
                yield Need(action.text, reason)
        base = self._base(action, script)
        contained = self.mode == "auto" and action.sandboxed and not action.network
        for command in script.commands:
            yield from self._simple_needs(command, base, free=contained or self.mode == "full")
        for redirect in script.redirects:
            yield from self._redirect_needs(redirect, base)
        if action.network and self.mode != "full" and ("network", action.text) not in self._session:
            yield Need(action.text, "it wants the network")

    def _reading_needs(self, action: RunCommand, script: Script) -> Iterator[Need]:
        """The same where only what surely reads may run: the rest is denied, and needs nobody's word."""
        base = self._base(action, script)
        for reason in script.opaque:
            yield _denied(action.text, reason)
        if action.network:
            yield _denied(action.text, "it wants the network")
        for command in script.commands:
            if any(rule.effect == "deny" and _denies(rule, command) for rule in self.book.rules.command):
                yield from self._simple_needs(command, base, free=False)
            elif not only_reads(command, base, self.root):
                yield _denied(str(command), "it is not known that it only reads, and that in the workspace")
        for redirect in script.redirects:
            if redirect.writes and not (redirect.target.fixed and redirect.target.text in _SINKS):
                yield _denied(f"writes to {redirect.target.text}", "")
            elif not redirect.writes:
                yield from self._redirect_needs(redirect, base)

    def _simple_needs(self, command: Simple, base: Path | None, *, free: bool) -> Iterator[Need]:
        denied = next(
            (rule for rule in self.book.rules.command if rule.effect == "deny" and _denies(rule, command)), None
        )
        if denied is not None:
            yield Need(str(command), f"a rule forbids {' '.join(denied.prefix)}", scopes=())
            return
        key = _key(command)
        if key is not None and key in self._session:
            return
        if reason := danger(command):
            yield Need(str(command), reason, ("once", "session") if key is not None else ("once",))
            return
        if free or only_reads(command, base, self.root) or self._allowed(command):
            return
        prefix = prefix_of(command)
        scopes: tuple[Scope, ...] = ("once", "session", "prefix") if prefix else ("once", "session")
        yield Need(str(command), _why(command), scopes, f"{' '.join(prefix)} ..." if prefix else "")

    def _allowed(self, command: Simple) -> bool:
        return any(
            rule.effect == "allow" and covers(rule.prefix, command) and set(command.env) <= set(rule.env)
            for rule in self.book.rules.command
        )

    def _redirect_needs(self, redirect: Redirect, base: Path | None) -> Iterator[Need]:
        target = redirect.target
        if target.fixed and target.text in _SINKS:
            return
        path = self._within(target.text, base) if target.fixed and base is not None else None
        if path is None:
            if redirect.writes or self.mode in ("read-only", "ask"):
                where = "writes to" if redirect.writes else "reads"
                yield Need(f"{where} {target.text}", "it is not sure to stay in the workspace", ("once",))
            return
        yield from self._file_needs(WriteFile(path) if redirect.writes else ReadFile(path))

    def _file_needs(self, action: WriteFile | ReadFile) -> Iterator[Need]:
        writes = isinstance(action, WriteFile)
        access = "write" if writes else "read"
        rules = [r for r in self.book.rules.path if r.access == access and _matches(r.glob, action.path)]
        what = f"{'writes' if writes else 'reads'} {action.path}"
        if any(rule.effect == "deny" for rule in rules):
            yield Need(what, "a rule forbids it", scopes=())
            return
        if writes and self._frozen:
            yield _denied(what, "")
            return
        if (access, action.path) in self._session:
            return
        internal = ".git" in PurePosixPath(action.path).parts
        if internal and writes:
            yield Need(what, "it belongs to git", ("once",))
        elif rules:
            return
        elif is_secret(action.path):
            yield Need(what, "its name says that it holds secrets", ("once", "session", "path"), _glob_for(action))
        elif writes and self.mode == "ask":
            yield Need(what, "it changes a file", ("once", "session", "path"), _glob_for(action))

    def _tool_needs(self, action: CallTool) -> Iterator[Need]:
        name = f"{action.server}/{action.tool}"
        rules = [r for r in self.book.rules.tool if r.name in (name, f"{action.server}/*")]
        if any(rule.effect == "deny" for rule in rules):
            yield Need(name, "a rule forbids it", scopes=())
        elif self._frozen and not action.read_only:
            yield _denied(name, "the server does not say of it that it only reads")
        elif not rules and self.mode != "full" and ("tool", name) not in self._session:
            reason = "a program of somebody else does it" + (
                ", which says that it only reads" if action.read_only else ""
            )
            yield Need(name, reason, ("once", "session", "prefix"), name)

    def _base(self, action: RunCommand, script: Script) -> Path | None:
        """The folder that relative paths start from; ``None`` when it changes in a way that cannot be told."""
        start = self.root / action.cwd
        if not script.moves:
            return start
        first, *rest = script.commands
        target = first.words[1] if first.name == "cd" and len(first.words) == 2 else None
        # In a list that goes on when it failed, the first move may not have happened.
        sure = re.match(r"cd [^\n;|&(){}<>]+ && ", action.text) is not None and "||" not in action.text
        if target is None or not target.fixed or not sure or any(c.name in ("cd", "pushd", "popd") for c in rest):
            return None
        if target.text.startswith("-"):
            return None
        inner = self._within(target.text, start)
        return self.root / inner if inner is not None else None

    def _within(self, name: str, base: Path) -> str | None:
        """The path relative to the workspace, links followed; ``None`` when it lies outside."""
        try:
            real = (base / name).resolve()
        except (OSError, RuntimeError, ValueError):
            return None
        return real.relative_to(self.root).as_posix() if real.is_relative_to(self.root) else None

    def _written(self, action: RunCommand, script: Script) -> list[str | None]:
        base = self._base(action, script)
        if base is None:
            return []
        return [self._within(r.target.text, base) for r in script.redirects if r.writes and r.target.fixed]


def _denied(what: str, why: str) -> Need:
    return Need(what, f"{_ONLY_READS}{', and ' if why else ''}{why}", scopes=())


def _key(command: Simple) -> tuple[object, ...] | None:
    """What has to be the same for a command to be the same; ``None`` when a part is only known at run time."""
    return ("command", command.fixed, command.env) if command.fixed is not None else None


def _denies(rule: CommandRule, command: Simple) -> bool:
    """A rule that forbids looks through the folder of a program and through words that are not known yet."""
    if not command.words:
        return False
    given = [command.name or command.words[0].text, *(word.text for word in command.words[1:])]
    return tuple(given[: len(rule.prefix)]) == rule.prefix or covers(rule.prefix, command)


def _why(command: Simple) -> str:
    if command.env:
        return f"no rule allows it with {command.env[0].split('=', 1)[0]} set"
    return "no rule allows it"


def _matches(glob: str, path: str) -> bool:
    special = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    parts = [special.get(piece, re.escape(piece)) for piece in re.split(r"(\*\*/?|\*|\?)", glob)]
    return re.fullmatch("".join(parts), path, re.DOTALL) is not None


def _glob_for(action: WriteFile | ReadFile) -> str:
    """The folder of a file that is written; a secret is allowed alone."""
    folder = PurePosixPath(action.path).parent.as_posix()
    if isinstance(action, ReadFile) or is_secret(action.path):
        return action.path
    return "**" if folder == "." else f"{folder}/**"
