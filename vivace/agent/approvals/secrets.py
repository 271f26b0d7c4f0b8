"""Files that hold secrets, by name: what is read goes to the model, which may run elsewhere."""

from __future__ import annotations

import fnmatch

_NAMES = (
    ".env",
    ".env.*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    ".git-credentials",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "service-account*.json",
    "secrets.*",
    "*.tfstate",
    "*.tfvars",
)
_NOT = (
    "*.example",
    "*.sample",
    "*.template",
    "*.dist",
    "*.pub",
    ".env.defaults",
    "*.py",
    "*.md",
    "*.go",
    "*.rs",
    "*.js",
    "*.ts",
)
_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".kube", ".azure", ".docker"})


def is_secret(path: str) -> bool:
    """Whether ``path`` (POSIX) is named like something that holds secrets."""
    parts = path.lower().split("/")
    name = parts[-1]
    if any(part in _FOLDERS for part in parts):
        return True
    return any(fnmatch.fnmatchcase(name, glob) for glob in _NAMES) and not any(
        fnmatch.fnmatchcase(name, glob) for glob in _NOT
    )


GLOBS = _NAMES
"""The same for programs that take globs; broader, exceptions are not in it."""
