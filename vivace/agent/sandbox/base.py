"""The contract of a sandbox, and the choice of one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from vivace.agent.sandbox.policy import Policy

TRIAL_SECONDS = 10.0


class Sandbox(Protocol):
    """Turns a command into one that runs under a policy."""

    name: str
    holds: bool
    """It keeps a command to the policy; without that every command may do what the user may."""

    def wrap(self, argv: Sequence[str], policy: Policy, cwd: Path | None = None) -> list[str]:
        """The command line that runs ``argv`` in ``cwd`` (the policy's root by default) under ``policy``."""
        ...


class Detection(Struct, frozen=True):
    """The sandbox of this machine. ``reason`` says why it is none, or what was found."""

    sandbox: Sandbox
    reason: str


class NoSandbox:
    """Commands run as they are: with the rights of the user, network included."""

    name = "none"
    holds = False

    def wrap(self, argv: Sequence[str], policy: Policy, cwd: Path | None = None) -> list[str]:
        return list(argv)


def detect(platform: str = sys.platform) -> Detection:
    """The sandbox that works here, proven by a trial; else none, with the reason.

    Takes some tens of milliseconds: one short command is run under a policy; it must be able to write inside and
    unable to write outside.
    """
    from vivace.agent.sandbox.bubblewrap import Bubblewrap
    from vivace.agent.sandbox.seatbelt import Seatbelt

    found: Bubblewrap | Seatbelt | None
    if platform.startswith("linux"):
        found, missing = Bubblewrap.find(), "bubblewrap (bwrap) is not installed"
    elif platform == "darwin":
        found, missing = Seatbelt.find(), "/usr/bin/sandbox-exec is not there"
    else:
        found, missing = None, f"there is no sandbox for {platform}"
    if found is None:
        return Detection(NoSandbox(), f"{missing}; commands run with your own rights")
    if fault := trial(found):
        return Detection(NoSandbox(), f"{found.name} does not work here ({fault}); commands run with your own rights")
    return Detection(found, f"{found.name}: writes stay in the workspace, no network unless asked for")


def trial(sandbox: Sandbox) -> str:
    """What is wrong with ``sandbox`` on this machine; empty when it holds."""
    with tempfile.TemporaryDirectory(prefix="vivace-trial-") as folder:
        outside = Path(folder).resolve()
        root = outside / "root"
        root.mkdir()
        (outside / "canary").touch()
        policy = Policy(root, home=None)
        # Two writes, one of which must fail. /tmp may be private, so the canary is looked at from here.
        script = f"echo in > in && echo out > '{outside}/canary'; test -d / && echo done"
        try:
            done = subprocess.run(
                sandbox.wrap(["/bin/sh", "-c", script], policy),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TRIAL_SECONDS,
                cwd=root,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode or "done" not in done.stdout:
            return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if not (root / "in").is_file():
            return "the workspace could not be written"
        if (outside / "canary").stat().st_size:
            return "a file outside the workspace could be written"
    return ""
