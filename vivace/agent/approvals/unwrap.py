"""Commands that run other commands: ``env``, ``timeout``, ``xargs``, ``bash -c``, ``find -exec``. What counts is what
they run; a rule for the one is no rule for the other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from vivace.agent.approvals.script import Script, Simple, Word, parse, sets_only_style

MAX_DEPTH = 8


class _Wrapper(Struct, frozen=True):
    """Options of a program that runs the rest of its words. ``arguments`` words come before the command."""

    flags: str = ""
    """Short options without a value, one letter each."""
    values: str = ""
    """Short options with a value, joined or in the next word."""
    long_flags: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()
    arguments: int = 0
    appends: bool = False
    """It adds words that are only known when it runs."""


WRAPPERS = {
    "command": _Wrapper(flags="p"),
    "builtin": _Wrapper(),
    "exec": _Wrapper(flags="cl", values="a"),
    "nohup": _Wrapper(),
    "time": _Wrapper(flags="pvq"),
    "nice": _Wrapper(values="n", long_values=("--adjustment",)),
    "ionice": _Wrapper(flags="t", values="cn", long_values=("--class", "--classdata")),
    "timeout": _Wrapper(
        flags="v",
        values="ks",
        long_flags=("--foreground", "--preserve-status", "--verbose"),
        long_values=("--kill-after", "--signal"),
        arguments=1,
    ),
    "stdbuf": _Wrapper(values="ioe", long_values=("--input", "--output", "--error")),
    "setsid": _Wrapper(flags="cfw", long_flags=("--ctty", "--fork", "--wait")),
    "xargs": _Wrapper(
        flags="0rtx",
        values="IndLPsEa",
        long_flags=("--null", "--no-run-if-empty", "--verbose", "--exit"),
        long_values=("--max-args", "--max-procs", "--replace", "--delimiter", "--max-lines", "--arg-file"),
        appends=True,
    ),
    "sudo": _Wrapper(flags="nEHSbk", values="ugpC"),
    "doas": _Wrapper(flags="n", values="uC"),
}
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_BUSYBOX = frozenset({"busybox", "toybox"})
HIDERS = {
    "coproc": "a coprocess is not understood",
    "alias": "an alias gives a command another meaning",
    "parallel": "what parallel runs is not understood",
    "watch": "what watch runs is not understood",
    "script": "what script runs is not understood",
    "strace": "what strace runs is not understood",
    "unshare": "what unshare runs is not understood",
    "nsenter": "what nsenter runs is not understood",
    "chroot": "what chroot runs is not understood",
    "flock": "what flock runs is not understood",
    "hash": "hash can give a command another meaning",
    "enable": "enable can give a command another meaning",
    "su": "what su runs is not understood",
    "fish": "what fish runs is not understood",
    "bind": "bind can run commands",
    "complete": "complete can run commands",
    "mapfile": "mapfile can run commands",
    "readarray": "readarray can run commands",
    "let": "arithmetic can run commands",
}


def unwrap(script: Script, depth: int = 0) -> Script:
    """The script with each wrapper replaced by what it runs; a wrapper that is not understood makes it opaque."""
    commands: list[Simple] = []
    redirects = list(script.redirects)
    opaque = list(script.opaque)
    moves = script.moves
    for command in script.commands:
        for inner in _opened(command, depth):
            if isinstance(inner, Simple):
                commands.append(inner)
            elif isinstance(inner, Script):
                commands += inner.commands
                redirects += inner.redirects
                opaque += inner.opaque
                moves |= inner.moves
            else:
                opaque.append(inner)
    return Script(tuple(commands), tuple(redirects), tuple(dict.fromkeys(opaque)), moves)


def _opened(command: Simple, depth: int) -> Iterator[Simple | Script | str]:
    """What ``command`` comes to: commands, scripts, or why it cannot be told."""
    name = command.name
    if depth > MAX_DEPTH:
        yield "commands are wrapped too deeply"
    elif reason := HIDERS.get(name):
        yield reason
    elif name == "printf" and any(not word.fixed or word.text.startswith("-v") for word in command.words[1:2]):
        yield "printf may set a variable"
    elif name in WRAPPERS and command.words[1:2] and _asks_only(command):
        yield command
    elif name in WRAPPERS:
        yield from _inner(command, WRAPPERS[name], depth, keep=name in ("sudo", "doas"))
    elif name == "env":
        yield from _env(command, depth)
    elif name in SHELLS:
        yield from _shell(command, depth)
    elif name in _BUSYBOX:
        yield from _again(command.words[1:], command.env, depth) if len(command.words) > 1 else (command,)
    elif name == "eval":
        yield from _text(command, " ".join(word.text for word in command.words[1:]), command.words[1:], depth)
    elif name == "trap":
        yield from (
            _text(command, command.words[1].text, command.words[1:2], depth) if len(command.words) > 2 else (command,)
        )
    elif name in ("find", "fd", "fdfind"):
        yield command
        yield from _find(command, depth)
    else:
        yield command


def _again(words: tuple[Word, ...], env: tuple[str, ...], depth: int) -> Iterator[Simple | Script | str]:
    if not words[0].fixed:
        yield f"the program is only known when it runs ({words[0].text})"
        return
    inner = unwrap(Script((Simple(words, env),), moves=words[0].text in ("cd", "pushd", "popd")), depth + 1)
    yield inner


def _asks_only(command: Simple) -> bool:
    """``command -v ls`` runs nothing."""
    return command.name == "command" and command.words[1].text in ("-v", "-V")


def _inner(command: Simple, wrapper: _Wrapper, depth: int, *, keep: bool) -> Iterator[Simple | Script | str]:
    at = _options(command.words, wrapper)
    if at is None:
        yield f"the options of {command.name} are not understood"
        return
    at += wrapper.arguments
    rest = command.words[at:]
    if wrapper.appends:
        rest = _filled(rest, _placeholders(command.words[:at]))
    if keep:
        yield command
    if not rest:
        if not keep:
            yield Simple((Word("echo"), Word("...", fixed=False)), command.env) if wrapper.appends else command
        return
    if wrapper.appends:
        rest = (*rest, Word("...", fixed=False))
    yield from _again(rest, command.env, depth)


def _placeholders(options: tuple[Word, ...]) -> tuple[str, ...]:
    """What xargs puts its input in place of."""
    found = []
    for n, word in enumerate(options):
        if word.text.startswith("-I"):
            found.append(word.text[2:] or (options[n + 1].text if n + 1 < len(options) else ""))
        elif word.text.startswith("--replace"):
            found.append(word.text.partition("=")[2] or "{}")
    return tuple(found)


def _filled(words: tuple[Word, ...], placeholders: tuple[str, ...]) -> tuple[Word, ...]:
    return tuple(Word(w.text, fixed=w.fixed and not any(p in w.text for p in placeholders)) for w in words)


def _options(words: tuple[Word, ...], wrapper: _Wrapper) -> int | None:
    """The index of the first word behind the options; ``None`` when one is unknown."""
    at = 1
    while at < len(words):
        word = words[at]
        if not word.fixed:
            # As an option's name it may be anything; as the command it is found opaque later.
            return at if not word.text.startswith("-") else None
        text = word.text
        if text == "--":
            return at + 1
        if not text.startswith("-") or text == "-":
            return at
        if text.startswith("--"):
            name, equals, _ = text.partition("=")
            if name in wrapper.long_values:
                at += 1 if equals else 2
            elif text in wrapper.long_flags:
                at += 1
            else:
                return None
            continue
        step = _short(text, wrapper)
        if step is None:
            return None
        at += step
    return at


def _short(text: str, wrapper: _Wrapper) -> int | None:
    for n, letter in enumerate(text[1:], 2):
        if letter in wrapper.values:
            return 1 if n < len(text) else 2
        if letter not in wrapper.flags:
            # nice -5 and its kin: a number is an option of its own.
            return 1 if text[1:].isdigit() and wrapper.values == "n" else None
    return 1


def _env(command: Simple, depth: int) -> Iterator[Simple | Script | str]:
    words = command.words[1:]
    env = list(command.env)
    while words:
        text = words[0].text
        if words[0].fixed and text in ("-i", "-", "--ignore-environment"):
            words = words[1:]
        elif words[0].fixed and text in ("-u", "--unset") and len(words) > 1:
            words = words[2:]
        elif re.match(r"[A-Za-z_]\w*=", text):
            if not sets_only_style(text):
                env.append(text)
            words = words[1:]
        elif text.startswith("-"):
            yield "the options of env are not understood"
            return
        else:
            yield from _again(words, tuple(env), depth)
            return
    yield command


def _shell(command: Simple, depth: int) -> Iterator[Simple | Script | str]:
    """``bash -c TEXT`` is the text; ``bash FILE`` is itself; ``bash`` alone runs what it is fed."""
    words = command.words[1:]
    while words:
        text = words[0].text
        if not words[0].fixed:
            yield f"what {command.name} runs is only known when it runs"
            return
        if re.fullmatch(r"-[abefhlmnuvxilE]*c", text) or re.fullmatch(r"-[euxl]*o", text):
            if text.endswith("o"):
                words = words[2:]
                continue
            yield from _text(command, words[1].text if len(words) > 1 else "", words[1:2], depth)
            return
        if text in ("--version", "--help"):
            yield command
            return
        if re.fullmatch(r"-[abefhmnuvxl]+|--(norc|noprofile|posix|login)", text):
            words = words[1:]
        elif text.startswith(("-", "+")):
            yield f"the options of {command.name} are not understood"
            return
        else:
            yield command
            return
    yield f"{command.name} runs whatever it is fed"


def _text(command: Simple, text: str, words: tuple[Word, ...], depth: int) -> Iterator[Simple | Script | str]:
    if not words or not all(word.fixed for word in words):
        yield f"what {command.name} runs is only known when it runs"
        return
    inner = unwrap(parse(text), depth + 1)
    yield Script(
        tuple(Simple(c.words, (*command.env, *c.env)) for c in inner.commands),
        inner.redirects,
        inner.opaque,
        inner.moves,
    )


def _find(command: Simple, depth: int) -> Iterator[Simple | Script | str]:
    """What ``-exec`` and its kin run."""
    starts = {"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"}
    words = command.words
    at = 1
    while at < len(words):
        if words[at].text not in starts:
            if not words[at].fixed and command.name == "find" and words[at].text.startswith("$"):
                yield "what find does is only known when it runs"
                return
            if command.name != "find" and words[at].text.startswith(("--exec", "-x", "-X")):
                yield f"what {command.name} runs is not understood"
                return
            at += 1
            continue
        end = at + 1
        while end < len(words) and words[end].text not in (";", "+"):
            end += 1
        inner = _filled(words[at + 1 : end], ("{",))
        if not inner:
            yield f"what {command.name} runs is not understood"
            return
        yield from _again((*inner, Word("...", fixed=False)), command.env, depth)
        at = end + 1
