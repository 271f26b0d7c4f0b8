"""What is asked for in every mode: commands whose harm cannot be taken back, or reaches beyond the workspace.

A rule for a prefix does not cover them; only the very same command, approved as it stands, is not asked twice in a
conversation. Programs can do all of this without a word of it on the command line (``python -c``); against that there
are the sandbox and the checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vivace.agent.approvals.names import names
from vivace.agent.approvals.script import Simple

_GIT_KNOWN = names(
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore checkout cherry "
    "cherry-pick clean clone commit config count-objects describe diff diff-tree difftool fetch for-each-ref "
    "format-patch fsck gc grep hash-object help init log ls-files ls-remote ls-tree maintenance merge merge-base "
    "mergetool mv name-rev notes prune pull push range-diff read-tree rebase reflog remote repack replace reset "
    "restore rev-list rev-parse revert rm shortlog show show-ref sparse-checkout stash status submodule switch "
    "symbolic-ref tag update-index update-ref var verify-commit version whatchanged worktree write-tree "
    "checkout-index filter-branch commit-tree"
)
_GIT_VALUES = ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix")
_GIT_CODE = ("-c", "--config-env", "--exec-path")

_ALWAYS = {
    "rm": "removes files",
    "unlink": "removes files",
    "shred": "destroys files",
    "srm": "removes files",
    "wipefs": "destroys a file system",
    "fdisk": "changes partitions",
    "sudo": "runs with the rights of root",
    "doas": "runs with the rights of root",
    "shutdown": "ends the machine",
    "reboot": "ends the machine",
    "halt": "ends the machine",
    "poweroff": "ends the machine",
    "pkill": "ends processes by name",
    "killall": "ends processes by name",
}


def danger(command: Simple) -> str:
    """Why ``command`` is asked for in every mode; empty when it is not."""
    name = command.name
    if reason := _ALWAYS.get(name) or ("makes a file system" if name.startswith("mkfs") else ""):
        return f"{name} {reason}" if not reason.startswith("makes") else reason
    rule = _RULES.get(name)
    words = [word.text if word.fixed else "?" for word in command.words[1:]]
    return rule(words, command) if rule else ""


def subcommand(command: Simple) -> int:
    """The index in ``words`` of git's subcommand, behind options that do not matter; 0 when there is none to name."""
    words = command.words
    at = 1
    while at < len(words):
        text = words[at].text
        if not words[at].fixed:
            return 0
        if text in _GIT_VALUES:
            at += 2
        elif text.startswith("-"):
            at += 1
        else:
            return at
    return 0


def _git(words: Sequence[str], command: Simple) -> str:
    at = subcommand(command)
    options = words[: max(0, at - 1)] if at else words
    if any(option == code or option.startswith(f"{code}=") for option in options for code in _GIT_CODE):
        return "git is given a setting on the command line, which can run code"
    if not at:
        if all(word.startswith("-") and word != "?" for word in words):
            return ""
        return "which git command it is, is only known when it runs"
    verb, rest = words[at - 1], words[at:]
    if verb not in _GIT_KNOWN:
        return f"git {verb} is no command of git's own: an alias may stand for anything"
    reason = _git_verb(verb, rest)
    return f"git {verb} {reason}" if reason else ""


def _git_verb(verb: str, rest: Sequence[str]) -> str:
    def has(*options: str) -> bool:
        return any(_is_option(word, name) for word in rest for name in options)

    first = rest[0] if rest else ""
    unknown = "?" in rest
    if verb in ("clean", "filter-branch", "prune", "checkout-index", "read-tree", "rm"):
        harmless = (verb == "clean" and has("-n", "--dry-run")) or (verb == "rm" and has("--cached"))
        return "" if harmless else "removes files or history"
    if verb == "reset":
        return "throws changes away" if unknown or has("--hard", "--merge", "--keep") else ""
    if verb == "restore":
        return "" if has("--staged", "-S") and not has("--worktree", "-W") and not unknown else "throws changes away"
    if verb in ("checkout", "switch"):
        # A branch may be switched to (git refuses when changes would be lost); a path overwrites what is there.
        given = [word for word in rest if not word.startswith("-")]
        creates = has("-b", "-c", "--orphan", "--create") and not has("-B", "-C")
        path = verb == "checkout" and not creates and ("--" in rest or len(given) > 1 or any(map(_like_path, given)))
        return "throws changes away" if unknown or path or has("-f", "--force", "--discard-changes", "-B", "-C") else ""
    if verb == "stash":
        return "" if first in ("list", "show") else "moves uncommitted work"
    if verb == "branch":
        return (
            "deletes or overwrites branches"
            if unknown or has("-d", "-D", "--delete", "-f", "--force", "-M", "-C")
            else ""
        )
    if verb == "tag":
        return "deletes or overwrites tags" if unknown or has("-d", "--delete", "-f", "--force") else ""
    if verb == "push":
        forced = has(
            "-f", "--force", "--force-with-lease", "--force-if-includes", "-d", "--delete", "--mirror", "--prune"
        )
        return "overwrites or deletes what others have" if unknown or forced or _refspec(rest) else ""
    if verb == "rebase":
        return "rewrites history"
    if verb in ("reflog", "worktree", "submodule", "remote", "notes", "replace", "bisect", "sparse-checkout"):
        harmless = first in ("", "list", "show", "status", "-v", "--verbose", "add", "init", "get-url", "exists", "log")
        return "" if harmless and not unknown else "removes or resets what git keeps"
    if verb in ("update-ref", "symbolic-ref", "gc", "update-index", "repack", "maintenance"):
        return "changes what git keeps"
    if verb in ("am", "merge", "cherry-pick", "revert"):
        return "throws changes away" if has("--abort", "--quit", "--skip") else ""
    if verb == "config":
        return "" if has("--get", "--get-all", "--list", "-l") or first in ("get", "list") else "changes what git runs"
    if verb == "commit":
        return "rewrites history" if has("--amend") else ""
    return ""


def _is_option(word: str, name: str) -> bool:
    """``word`` is ``name``: with a value, shortened as git allows, or a letter among joined ones."""
    if name.startswith("--"):
        given = word.partition("=")[0]
        return len(given) > 3 and given.startswith("--") and name.startswith(given)
    return word.startswith("-") and not word.startswith("--") and name[1] in word[1:]


def _like_path(word: str) -> bool:
    return (
        word in (".", "..")
        or word.endswith("/")
        or word.startswith(("./", "../", ":", "/"))
        or "." in word.rsplit("/")[-1]
    )


def _refspec(rest: Sequence[str]) -> bool:
    return any(word.startswith(("+", ":")) for word in rest)


def _find(words: Sequence[str], command: Simple) -> str:
    return "find -delete removes files" if "-delete" in words else ""


def _dd(words: Sequence[str], command: Simple) -> str:
    return "dd overwrites files or disks" if any(word.startswith("of=") or word == "?" for word in words) else ""


def _kill(words: Sequence[str], command: Simple) -> str:
    return "kill -1 ends every process" if words[-1:] in (["-1"], ["0"]) and len(words) > 1 else ""


def _recursive(words: Sequence[str], command: Simple) -> str:
    deep = any(_is_option(word, "-R") or _is_option(word, "--recursive") for word in words)
    return f"{command.name} -R changes whole folders" if deep else ""


def _truncate(words: Sequence[str], command: Simple) -> str:
    return "truncate cuts files"


def _rsync(words: Sequence[str], command: Simple) -> str:
    removes = any(word.startswith(("--delete", "--remove-source")) or word == "?" for word in words)
    return "rsync removes files" if removes else ""


def _containers(words: Sequence[str], command: Simple) -> str:
    harmful = {"rm", "rmi", "prune", "kill", "delete", "destroy", "down", "uninstall", "drain", "apply"}
    return f"{command.name} removes or changes what runs elsewhere" if harmful & {*words} or "?" in words[:1] else ""


def _publish(words: Sequence[str], command: Simple) -> str:
    harmful = {"publish", "unpublish", "upload", "yank", "deprecate"}
    return f"{command.name} publishes" if harmful & {*words[:2]} else ""


def _gh(words: Sequence[str], command: Simple) -> str:
    harmful = {"delete", "close", "merge", "api", "archive", "edit", "create", "transfer"}
    return "gh changes what others see" if harmful & {*words[:3]} or "?" in words[:2] else ""


_RULES: dict[str, Callable[[Sequence[str], Simple], str]] = {
    "git": _git,
    "find": _find,
    "dd": _dd,
    "kill": _kill,
    "chmod": _recursive,
    "chown": _recursive,
    "chgrp": _recursive,
    "truncate": _truncate,
    "rsync": _rsync,
    "docker": _containers,
    "podman": _containers,
    "kubectl": _containers,
    "helm": _containers,
    "terraform": _containers,
    "npm": _publish,
    "pnpm": _publish,
    "yarn": _publish,
    "cargo": _publish,
    "twine": _publish,
    "uv": _publish,
    "poetry": _publish,
    "gem": _publish,
    "gh": _gh,
}
