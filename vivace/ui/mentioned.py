"""Files that a message names with ``@``."""

from __future__ import annotations

import re
from pathlib import Path

_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")


def mentioned(text: str, root: Path) -> tuple[str, ...]:
    """Those that are there and lie in ``root``, each once, in order."""
    found: dict[str, None] = {}
    for match in _MENTION.finditer(text):
        name = match[1] or match[2]
        for candidate in (name, name.rstrip(".,;:!?)")):
            if _inside(root, candidate):
                found[candidate] = None
                break
    return tuple(found)


def written(path: str) -> str:
    """``path`` as it is put into a text."""
    return f'@"{path}"' if " " in path else f"@{path}"


def _inside(root: Path, name: str) -> bool:
    try:
        real = (root / name).resolve()
        return real.is_relative_to(root.resolve()) and real.is_file()
    except (OSError, ValueError):
        return False
