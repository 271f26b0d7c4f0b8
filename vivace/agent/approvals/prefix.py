"""How much of a command a rule for its beginning may cover: enough to be asked once, not enough to allow anything."""

from __future__ import annotations

import re

from vivace.agent.approvals.danger import danger, subcommand
from vivace.agent.approvals.names import names
from vivace.agent.approvals.script import Simple
from vivace.agent.approvals.unwrap import HIDERS, SHELLS, WRAPPERS

_WITH_VERBS = names(
    "npm pnpm yarn bun deno cargo go rustup dotnet mvn gradle ./gradlew ./mvnw make just task docker podman kubectl "
    "helm terraform gh pip pip3 uv poetry pdm hatch tox nox pre-commit conda apt apt-get brew systemctl bundle rails "
    "composer php mix flutter dart swift xcodebuild bazel npx pnpx bunx uvx pipx"
)
"""Programs whose first argument says what they do."""
_RUNNERS = frozenset(
    {("npm", "run"), ("pnpm", "run"), ("yarn", "run"), ("bun", "run"), ("uv", "run"), ("poetry", "run")}
)
_INTERPRETERS = re.compile(
    r"(python|pypy)[\d.]*|node|ruby|perl|php|lua|deno|bun|Rscript|julia|osascript|awk|gawk|sed|tclsh"
)
_CODE = frozenset({"-c", "-e", "-E", "--eval", "-p", "--print", "-r", "-pe", "-ne", "-i", "-"})
_NEVER = names("ssh scp eval source . exec awk gawk mawk sed dd tee cp mv ln install chmod chown tar")
"""Their arguments decide everything; they are approved as they stand."""


def prefix_of(command: Simple) -> tuple[str, ...]:
    """The words that a rule for commands like this would hold; empty when it may only be approved as it stands."""
    words = command.words
    name = command.name
    if not name or danger(command) or name in _NEVER or name in HIDERS or name in WRAPPERS or name in SHELLS:
        return ()
    if name == "git":
        at = subcommand(command)
        length = 2 if at == 1 else 0
    elif name in _WITH_VERBS or words[0].text in _WITH_VERBS:
        pair = tuple(word.text for word in words[:2])
        length = 3 if pair in _RUNNERS else 2
    elif _INTERPRETERS.fullmatch(name):
        length = 3 if len(words) > 2 and words[1].text == "-m" else 2
        if len(words) < 2 or words[1].text in _CODE or (length == 2 and words[1].text.startswith("-")):
            return ()
    else:
        length = 1
    chosen = words[:length]
    if len(chosen) < length or not all(word.fixed for word in chosen) or not length:
        return ()
    if length > 1 and chosen[1].text.startswith("-") and chosen[1].text != "-m":
        return ()
    return tuple(word.text for word in chosen)


def covers(prefix: tuple[str, ...], command: Simple) -> bool:
    """Whether ``command`` begins with ``prefix``, word for word, none of them only known at run time."""
    head = command.words[: len(prefix)]
    return bool(prefix) and tuple(word.text for word in head) == prefix and all(word.fixed for word in head)
