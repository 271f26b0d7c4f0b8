"""What a sandboxed command may see and change."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

_TOOLCHAINS = (
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".rustup",
    ".nvm",
    ".fnm",
    ".volta",
    ".pyenv",
    ".asdf/installs",
    ".asdf/shims",
    ".sdkman/candidates",
    ".m2/repository",
    ".gradle/caches",
    ".npm/_cacache",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".local/share/mise",
    ".local/share/pnpm",
    ".cache/pip",
    ".cache/uv",
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    "go/bin",
    "go/pkg",
)
"""Inside the home folder: compilers, package caches and git's settings; no folder that has keys in it."""

_INSTALLATION = ("pyvenv.cfg", "conda-meta", "include", "libexec")
"""What lies beside the ``bin`` folder of something installed as a whole."""

_KEYS = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".config/gh",
    ".local/share/keyrings",
    ".mozilla",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".cargo/credentials.toml",
)
_START_FILES = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".config/fish")

_SECRET_NAME = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|DSN|PAT)(_|$)"
    r"|^AWS_|^SSH_|^GPG_|^DOCKER_|^KUBE|_(KEY|TOKEN|SECRET)S?$|DATABASE_URL$",
    re.IGNORECASE,
)
"""Names of environment variables that carry secrets, or reach an agent that holds them."""


class Policy(Struct, frozen=True):
    """``root`` is the workspace: readable and writable. The rest of the disk is readable, the home folder is not.

    All paths are real ones (symlinks resolved). The network is on or off: there is no list of permitted hosts, since
    neither bubblewrap nor Seatbelt can name one.
    """

    root: Path
    network: bool = False
    writable: tuple[Path, ...] = ()
    """More folders to write to."""
    readable: tuple[Path, ...] = ()
    """More of the home folder to read."""
    home: Path | None = None
    """The folder that is hidden; ``None`` hides nothing."""


def policy_for(root: Path, *, network: bool = False, writable: Sequence[Path] = ()) -> Policy:
    """The policy of a workspace on this machine, as its environment is now."""
    root = root.resolve()
    home = _home()
    readable = toolchains(home, os.environ.get("PATH", "")) if home is not None else ()
    return Policy(root, network, tuple(path.resolve() for path in writable), readable, home)


def toolchains(home: Path, search_path: str) -> tuple[Path, ...]:
    """What of the home folder commands need to run: known toolchains, what ``PATH`` names, and this Python."""
    found = [home / name for name in _TOOLCHAINS]
    programs = [Path(entry) for entry in search_path.split(os.pathsep) if entry]
    prefixes = [Path(sys.prefix), Path(sys.base_prefix)]
    for folder in programs:
        # A whole installation (~/miniconda3/bin), but neither ~/.local nor ~/.cargo, which hold much else.
        whole = folder.name == "bin" and any((folder.parent / mark).exists() for mark in _INSTALLATION)
        prefixes.append(folder.parent if whole and folder.parent not in (home, home / ".local") else folder)
    inside = [path for path in prefixes if path.is_relative_to(home) and path != home]
    wanted = sorted({path for path in (*found, *inside) if path.exists()})
    return tuple(path for path in wanted if not any(other in path.parents for other in wanted))


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what looks like a secret: commands print it, and what they print goes to the model."""
    return {name: value for name, value in environment.items() if not _SECRET_NAME.search(name)}


def git_folders(root: Path) -> tuple[Path, ...]:
    """Git's folders of the workspace that lie elsewhere: those of a linked worktree or a submodule."""
    mark = root / ".git"
    try:
        if not mark.is_file():
            return ()
        text = mark.read_text(encoding="utf-8", errors="surrogateescape")
        if not text.startswith("gitdir:"):
            return ()
        folder = (root / text.removeprefix("gitdir:").strip()).resolve()
        common = folder / "commondir"
        shared = (folder / common.read_text(encoding="utf-8").strip()).resolve() if common.is_file() else folder
        # Whoever wrote the file may have written anything: only a folder that is git's own counts.
        real = all((path / "HEAD").is_file() for path in (folder, shared)) and (shared / "objects").is_dir()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(dict.fromkeys((shared, folder))) if real else ()


def git_stores(root: Path) -> tuple[Path, ...]:
    """Every folder of git's that belongs to the workspace."""
    own = root / ".git"
    return (*((own,) if own.is_dir() and not own.is_symlink() else ()), *git_folders(root))


def guarded(policy: Policy) -> tuple[Path, ...]:
    """Inside the workspace, yet not writable: what git or a login shell would run when the user calls it outside.

    Repositories that lie deeper in the workspace are not searched for, except git's own submodules.
    """
    found = []
    for store in git_stores(policy.root):
        for folder in (store, *sorted(store.glob("modules/*"))):
            found += [folder / name for name in ("hooks", "config", "config.worktree") if (folder / name).exists()]
    if policy.home is not None and policy.home.is_relative_to(policy.root):
        found += [policy.home / name for name in _START_FILES if (policy.home / name).exists()]
    return tuple(found)


def concealed(policy: Policy) -> tuple[Path, ...]:
    """Inside the workspace, yet not readable: keys, where somebody works in the home folder itself."""
    if policy.home is None or not policy.home.is_relative_to(policy.root):
        return ()
    return tuple(policy.home / name for name in _KEYS if (policy.home / name).exists())


def _home() -> Path | None:
    try:
        home = Path.home().resolve()
    except (RuntimeError, OSError):
        return None
    return None if home == Path("/") or not home.is_dir() else home
