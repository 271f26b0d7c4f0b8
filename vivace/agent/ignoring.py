"""What the repository ignores: ``.gitignore`` files, ``.git/info/exclude`` and the user's ``git/ignore``.

The rules are those of git's documentation (gitignore), matched on bytes as git does; they hold without a repository and
without git too. ``core.excludesFile`` and ``core.ignoreCase`` are not read. A tracked file is never ignored, which only
git can tell: see :func:`tracked_though_ignored`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

GIT_SECONDS = 20.0
"""How long git may take to name the tracked files."""

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r"\ \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e",
    "graph": r"\x21-\x7e",
}


class Pattern:
    """One line of an ignore file."""

    __slots__ = ("anchored", "folders_only", "matches", "negated")

    def __init__(self, line: str) -> None:
        self.negated = line.startswith("!")
        line = line[self.negated :]
        self.folders_only = line.endswith("/")
        line = line.removesuffix("/")
        self.anchored = "/" in line
        line = line.removeprefix("/")
        self.matches = re.compile(_regex(line).encode("utf-8", "surrogateescape"), re.DOTALL).fullmatch


class Rules:
    """The patterns of one ignore file, over those of the folders above it.

    ``base`` is the folder that anchored patterns speak of, as a prefix of the paths given to :meth:`ignored`.
    """

    def __init__(self, above: Rules | None, base: str, text: str) -> None:
        self.above = above
        self.base = len(os.fsencode(base))
        self.patterns = parse(text)[::-1]
        self.told: dict[str, dict[tuple[str, bool], bool]] = {}
        """Answers given before, by folder; for whoever asks for the same paths again and again."""
        self._inner: dict[tuple[str, str], Rules] = {}

    def inner(self, base: str, text: str) -> Rules:
        """These rules under those of a file in the folder ``base``; the same object for the same text."""
        known = self._inner.get((base, text))
        if known is None:
            known = self._inner[base, text] = Rules(self, base, text)
        return known

    def ignored(self, path: str, *, is_folder: bool) -> bool:
        """Whether the last pattern that matches ignores it. The folders above ``path`` are not looked at."""
        raw = os.fsencode(path)
        name = raw[raw.rfind(b"/") + 1 :]
        rules: Rules | None = self
        while rules is not None:
            below = raw[rules.base :]
            for pattern in rules.patterns:
                if (is_folder or not pattern.folders_only) and pattern.matches(below if pattern.anchored else name):
                    return not pattern.negated
            rules = rules.above
        return False


def parse(text: str) -> list[Pattern]:
    """Patterns in their order; blank lines, comments and what git calls invalid are dropped."""
    patterns = []
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.removesuffix("\r")
        while line.endswith(" ") and not line.endswith("\\ "):
            line = line[:-1]
        if not line or line.startswith("#") or not line.strip("/!"):
            continue
        try:
            patterns.append(Pattern(line))
        except re.error:
            continue
    return patterns


def _regex(glob: str) -> str:
    """git's wildmatch as a regular expression. Raises :class:`re.error` for a pattern that can match nothing."""
    at, out = 0, []
    first = next((n for n, char in enumerate(glob) if char in "*?[\\"), len(glob))
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            stars = at - 1
            while glob[at : at + 1] == "*":
                at += 1
            # git compares what stands before the first special character on its own: these stars begin the rest.
            alone = (stars in (0, first) or glob[stars - 1] == "/") and at - stars >= 2
            if alone and glob[at : at + 1] == "/":
                out.append("(?:.*/)?")
                at += 1
            else:
                out.append(".*" if alone and at == len(glob) else "[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            shown, at = _bracket(glob, at)
            out.append(shown)
        else:
            if char == "\\":
                if at == len(glob):
                    raise re.error("a backslash at the end")
                char = glob[at]
                at += 1
            out.append(re.escape(char))
    return "".join(out)


def _bracket(glob: str, at: int) -> tuple[str, int]:
    """A set of characters from behind its ``[``; the expression and where the pattern goes on."""
    negated = glob[at : at + 1] in ("!", "^") and at < len(glob)
    at += negated
    out, first = [], True
    while True:
        if at >= len(glob):
            raise re.error("a set that does not end")
        char = glob[at]
        if char == "]" and not first:
            break
        first = False
        if glob.startswith("[:", at) and (end := glob.find(":]", at)) > 0:
            if glob[at + 2 : end] not in _CLASSES:
                raise re.error("an unknown class")
            out.append(_CLASSES[glob[at + 2 : end]])
            at = end + 2
            continue
        low, at = _member(glob, at)
        if glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(glob, at + 1)
            if low <= high:
                out.append(f"{re.escape(low)}-{re.escape(high)}")
            continue
        out.append(re.escape(low))
    inside = "".join(out)
    if not inside:
        return ("[^/]" if negated else "(?!)"), at + 1
    return (f"[^/{inside}]" if negated else f"(?!/)[{inside}]"), at + 1


def _member(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\":
        at += 1
        if at >= len(glob):
            raise re.error("a set that does not end")
    return glob[at], at + 1


def outer_rules(root: Path, environ: Mapping[str, str] = os.environ) -> tuple[Rules, str]:
    """The rules that hold for ``root`` from outside it, and the prefix that puts its paths below their top.

    The user's own come first, then the repository's ``info/exclude``, then the ``.gitignore`` of each folder above.
    """
    config = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '~')}/.config"
    rules = Rules(None, "", _text(Path(config).expanduser() / "git" / "ignore"))
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None:
        return rules, ""
    rules = Rules(rules, "", _text(_git_folder(top / ".git") / "info" / "exclude"))
    inner = root.relative_to(top)
    for above in reversed(inner.parents):
        if above != inner:
            base = "" if above == Path() else f"{above.as_posix()}/"
            rules = Rules(rules, base, _text(top / above / ".gitignore"))
    return rules, "" if inner == Path() else f"{inner.as_posix()}/"


def index_of(root: Path) -> Path | None:
    """The index of the repository that ``root`` lies in; its stat tells when the set of tracked files may differ."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None:
        return None
    git = top / ".git"
    return (_pointed(git) or git) / "index"


def tracked_though_ignored(root: Path) -> tuple[list[str], str]:
    """Files that git tracks although they are ignored, relative to ``root``; and what kept git from telling, if so.

    The index is only read: optional locks are off, and so is a monitor that the repository's own settings may name.
    """
    git = shutil.which("git")
    if git is None:
        return [], "git is not installed: a tracked file that is ignored as well counts as ignored"
    command = [git, "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-z", "-c", "-i", "--exclude-standard"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=GIT_SECONDS, env=environ | {"GIT_OPTIONAL_LOCKS": "0"}, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"git did not tell the tracked files ({error}): those that are ignored as well count as ignored"
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return [], f"git did not tell the tracked files ({said[-1] if said else done.returncode})"
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name], ""


def _git_folder(git: Path) -> Path:
    """The folder that holds ``info``, also for a worktree, whose ``.git`` is a file that points elsewhere."""
    own = _pointed(git) or git
    common = _text(own / "commondir").strip()
    return own / common if common else own


def _pointed(git: Path) -> Path | None:
    said = _text(git) if git.is_file() else ""
    return git.parent / said.removeprefix("gitdir:").strip() if said.startswith("gitdir:") else None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
