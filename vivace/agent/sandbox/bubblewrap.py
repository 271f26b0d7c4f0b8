"""Linux: bubblewrap (https://github.com/containers/bubblewrap), which needs no root and no daemon."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vivace.agent.sandbox.policy import Policy, concealed, git_folders, git_stores, guarded

_PRIVATE = ("/tmp", "/var/tmp", "/run")
"""Empty inside. /run holds the sockets of daemons: Docker, D-Bus, the SSH agent; /tmp those of everybody else."""


class Bubblewrap:
    """Namespaces for files, processes and, with the network off, the network.

    A signal that ends the outer process ends every process inside at once (the kernel kills a pid namespace whole), so
    nothing inside can outlive a stop.
    """

    name = "bubblewrap"
    holds = True

    def __init__(self, program: str) -> None:
        self.program = program

    @classmethod
    def find(cls) -> Bubblewrap | None:
        """The installed one, if any. Whether it works is for :func:`vivace.agent.sandbox.base.trial` to say."""
        program = shutil.which("bwrap")
        return cls(program) if program else None

    def wrap(self, argv: Sequence[str], policy: Policy, cwd: Path | None = None) -> list[str]:
        return [self.program, *self._arguments(policy, cwd or policy.root), "--", *argv]

    def _arguments(self, policy: Policy, cwd: Path) -> Iterator[str]:
        yield from ("--die-with-parent", "--new-session")
        yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
        if not policy.network:
            yield "--unshare-net"
        # Started by root it would keep every capability, and could mount the disk writable again.
        yield from ("--cap-drop", "ALL")
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        for folder in _PRIVATE:
            if Path(folder).is_dir() and not Path(folder).is_symlink():
                yield from ("--tmpfs", folder)
        yield from self._resolver(policy)
        if policy.home is not None:
            yield from ("--tmpfs", str(policy.home))
            for path in policy.readable:
                yield from ("--ro-bind-try", str(path), str(path))
        for prefix in _own_python():
            yield from ("--ro-bind-try", prefix, prefix)
        # Outer folders first, or a later mount would hide an inner one.
        for path in sorted({policy.root, *policy.writable, *git_folders(policy.root)}):
            yield from ("--bind", str(path), str(path))
        for store in git_stores(policy.root):
            # A folder that is a mount cannot be renamed, and another put in its place.
            yield from ("--bind", str(store), str(store))
            if not (store / "hooks").exists():
                yield from ("--tmpfs", f"{store}/hooks", "--remount-ro", f"{store}/hooks")
        for path in guarded(policy):
            yield from ("--ro-bind", str(path), str(path))
        for path in concealed(policy):
            yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))
        yield from ("--setenv", "TMPDIR", "/tmp", "--chdir", str(cwd))

    def _resolver(self, policy: Policy) -> Iterator[str]:
        """Name resolution is often a link into /run."""
        real = Path("/etc/resolv.conf").resolve()
        if policy.network and real.is_relative_to("/run") and real.exists():
            yield from ("--ro-bind", str(real.parent), str(real.parent))


def _own_python() -> list[str]:
    """This Python's folders where a private one would hide them: an environment under /tmp has to run its own tests."""
    return sorted({p for p in (sys.prefix, sys.base_prefix) if any(Path(p).is_relative_to(hid) for hid in _PRIVATE)})
