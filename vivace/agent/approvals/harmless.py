"""Commands that only read, by program and options: they pass without a question in every mode.

The lists are short on purpose. A program that can write or run something by an option passes without that option only.
"""

from __future__ import annotations

import re
from pathlib import Path

from vivace.agent.approvals.danger import subcommand
from vivace.agent.approvals.names import names
from vivace.agent.approvals.script import Simple
from vivace.agent.approvals.secrets import is_secret

_SAYS = names("echo printf true false : pwd whoami id uname date hostname sleep seq test [ type which command")
"""Read no files; ``date`` and ``hostname`` set nothing without rights or an option that is refused below."""
_READS = names(
    "ls cat head tail wc stat file du df dirname basename realpath readlink diff cmp cut tr tac rev nl column comm "
    "paste fold grep egrep fgrep rg sort uniq find md5sum sha1sum sha256sum cksum od hexdump strings tree cd"
)
_REFUSED = {
    "date": ("-s", "--set"),
    "hostname": ("-F", "--file", "-b"),
    "command": ("-p",),
    "rg": ("--pre", "--hostname-bin", "-z", "--search-zip"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"),
    "find": (
        "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from",
    ),
    "tree": ("-o", "--output"),
    "file": ("-C", "--compile", "-f", "--files-from"),
}  # fmt: skip
_ONE_FILE = frozenset({"uniq"})
"""A second file name is written to."""
_GIT = names(
    "status diff log show blame annotate ls-files ls-tree cat-file rev-parse rev-list describe shortlog merge-base "
    "name-rev diff-tree for-each-ref show-ref count-objects check-ignore whatchanged version"
)
_GIT_REFUSED = ("--output", "--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--no-index", "--contents")


def only_reads(command: Simple, base: Path | None, root: Path) -> bool:
    """Whether ``command`` surely changes nothing, runs nothing else, and reads inside ``root`` and no secrets.

    It runs in ``base``; ``None`` when that is only known when it runs.
    """
    if command.env or not command.words or not command.words[0].fixed:
        return False
    program = command.words[0].text
    if program != command.name and program not in (f"/bin/{command.name}", f"/usr/bin/{command.name}"):
        return False
    words = command.words[1:]
    texts = [word.text for word in words]
    if command.name == "git":
        return _git_reads(command) and base is not None and all(_readable(text, base, root) for text in texts)
    for option in _REFUSED.get(command.name, ()):
        if any(_given(text, option) for text in texts):
            return False
    if command.name in _ONE_FILE and sum(not text.startswith("-") for text in texts) > 1:
        return False
    if command.name in _SAYS:
        return command.name not in ("date", "hostname", "printf") or command.fixed is not None
    if command.name not in _READS or base is None:
        return False
    # A word that is only known at run time may be an option, or a path that leads anywhere.
    safe = command.name not in _REFUSED
    known = all(word.fixed or _plain_glob(word.text, options_are_safe=safe) for word in words)
    return known and all(_readable(text, base, root) for text in texts)


def _git_reads(command: Simple) -> bool:
    at = subcommand(command) if command.fixed is not None else 0
    words = [word.text for word in command.words]
    if not at or any(word != "--no-pager" for word in words[1:at]):
        return False
    rest = words[at + 1 :]
    if any(_given(word, option) for word in rest for option in _GIT_REFUSED):
        return False
    verb = words[at]
    if verb in ("branch", "remote", "stash", "tag", "reflog", "worktree"):
        listing = {
            "branch": {"-a", "-r", "-v", "-vv", "--list", "--show-current", "--all"},
            "remote": {"-v", "show"},
            "stash": {"list"},
            "tag": {"-l", "--list"},
            "reflog": set(),
            "worktree": {"list"},
        }[verb]
        needs = verb in ("stash", "worktree")
        return set(rest) <= listing and (bool(rest) or not needs)
    return verb in _GIT


def _given(word: str, option: str) -> bool:
    if option.startswith("--"):
        given = word.partition("=")[0]
        return len(given) > 2 and given.startswith("--") and option.startswith(given)
    if len(option) > 2:  # find's long options with one dash
        return word == option
    return word.startswith("-") and not word.startswith("--") and option[1] in word[1:]


def _plain_glob(text: str, *, options_are_safe: bool) -> bool:
    """A glob is known enough where it stays in its folder, and where no file name that it finds can be an option."""
    value = re.sub(r"^--[a-z-]+=", "", text)
    starts = value[:1].isalnum() or value[:1] == "_" or value.startswith("./") or options_are_safe or value != text
    return starts and re.search(r"[$`\"'~{}()\\]", text) is None and ".." not in text


def _readable(text: str, base: Path, root: Path) -> bool:
    """The word, taken for a path from ``base``, stays inside the workspace and is no secret."""
    value = text.partition("=")[2] if text.startswith("--") else text
    if not value or value in ("-", "/dev/null"):
        return True
    if is_secret(value) or value.startswith("~"):
        return False
    if value.startswith("-"):
        return "/" not in value  # -f/etc/passwd
    try:
        real = (base / value).resolve()
    except (OSError, RuntimeError, ValueError):
        return False
    return real.is_relative_to(root) and not is_secret(real.name)
