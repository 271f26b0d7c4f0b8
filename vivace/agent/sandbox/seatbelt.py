"""macOS: a Seatbelt profile for ``sandbox-exec``.

The language is Apple's own and documented by its examples in /System/Library/Sandbox/Profiles; the last rule that
matches decides. Apple calls the program deprecated and ships it with every release; there is no successor for commands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.sandbox.policy import Policy, concealed, git_folders, git_stores, guarded

PROGRAM = "/usr/bin/sandbox-exec"
"""By its full path: a program of that name elsewhere in ``PATH`` is somebody else's."""

_HEAD = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow pseudo-tty)
(allow ipc-posix-sem ipc-posix-shm)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.trustd.agent"))
(allow file-read* file-test-existence)
(allow file-write-data file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/dtracehelper")
  (regex #"^/dev/ttys[0-9]+$"))
"""


class Seatbelt:
    """Rules in the kernel for files, processes and the network. It has no private /tmp: a folder of the user's
    temporary folder is not writable unless the policy names it."""

    name = "Seatbelt"
    holds = True

    def __init__(self, program: str = PROGRAM) -> None:
        self.program = program

    @classmethod
    def find(cls) -> Seatbelt | None:
        return cls() if Path(PROGRAM).is_file() else None

    def wrap(self, argv: Sequence[str], policy: Policy, cwd: Path | None = None) -> list[str]:
        where = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(cwd)] if cwd is not None else []
        return [self.program, "-p", profile(policy), *where, *argv]


def profile(policy: Policy) -> str:
    """The profile as text."""
    parts = [_HEAD]
    if policy.home is not None:
        parts.append(f"(deny file-read* (subpath {_quoted(policy.home)}))")
        # Programs look a path up from the top; names of folders on the way may be seen, their contents not.
        parts.append(f"(allow file-read-metadata (subpath {_quoted(policy.home)}))")
        parts += [f"(allow file-read* (subpath {_quoted(path)}))" for path in policy.readable]
    for path in sorted({policy.root, *policy.writable, *git_folders(policy.root)}):
        parts.append(f"(allow file-read* file-write* (subpath {_quoted(path)}))")
    stores = git_stores(policy.root)
    parts += [f"(deny file-write* (literal {_quoted(store)}) (subpath {_quoted(store / 'hooks')}))" for store in stores]
    parts += [f"(deny file-write* (subpath {_quoted(path)}))" for path in guarded(policy)]
    parts += [f"(deny file-read* file-write* (subpath {_quoted(path)}))" for path in concealed(policy)]
    if policy.network:
        parts.append("(allow network*)\n(allow system-socket)")
    return "\n".join(parts) + "\n"


def _quoted(path: Path) -> str:
    """A string of the profile language: backslash and double quote are escaped, as in JSON."""
    return json.dumps(str(path), ensure_ascii=False)
