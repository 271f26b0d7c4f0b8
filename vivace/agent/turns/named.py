"""Which files a message is about: those that it names, else those that are obvious from what it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.languages import BY_SUFFIX
from vivace.agent.repomap.files import project_files

MOST = 8
"""Files of one message; more are no quick edit."""
MOST_SEARCHED = 400
"""Source files that are looked through for a definition."""
_MAX_BYTES = 400_000

_WORD = re.compile(r"[\w./\\@+-]*[\w+-]")
_QUOTED = re.compile(r"`([^`\n]+)`")


def named_files(root: Path, text: str, files: Sequence[str] | None = None) -> list[str]:
    """Files of the project that ``text`` names, by path or by a name that only one file has; in the order of naming."""
    words = {word.lstrip("@./").replace("\\", "/") for word in _WORD.findall(text) if "." in word or "/" in word}
    words |= {word for word in _QUOTED.findall(text) if word.isidentifier() and word[:1].isupper()}
    if not words:
        return []
    known = files if files is not None else project_files(root)
    by_name: dict[str, list[str]] = {}
    for path in known:
        by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    whole = set(known)
    found: dict[str, int] = {}
    for word in words:
        same = [word] if word in whole else by_name.get(word, []) if "/" not in word else _ending(known, word)
        if len(same) == 1:
            found.setdefault(same[0], text.find(word))
    return sorted(found, key=lambda path: found[path])[:MOST]


def obvious_files(root: Path, text: str, files: Sequence[str] | None = None) -> list[str]:
    """The one file that defines what the text names in backticks, as ``f()`` or in code style; nothing in doubt."""
    names = {part for span in _QUOTED.findall(text) for part in re.findall(r"[A-Za-z_]\w*", span)}
    names |= set(re.findall(r"\b([A-Za-z_]\w*)\(", text)) | set(re.findall(r"\b([A-Z]\w+)\.\w+\(", text))
    names |= set(re.findall(r"\b([a-z]+_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)\b", text))
    if not names:
        return []
    known = files if files is not None else project_files(root)
    sources = [path for path in known if Path(path).suffix.lower() in BY_SUFFIX and not path.endswith(".md")]
    defines = re.compile(
        rf"^\s*(?:export\s+|pub\s+|async\s+|static\s+|public\s+|default\s+)*"
        r"(?:def|class|function|func|fn|struct|interface|type|enum|trait|const|let|var)\s+"
        rf"({'|'.join(map(re.escape, names))})\b",
        re.MULTILINE,
    )
    found: dict[str, set[str]] = {}
    for path in sources[:MOST_SEARCHED]:
        file = root / path
        try:
            if file.stat().st_size > _MAX_BYTES:
                continue
            text_of = file.read_text(encoding="utf-8", errors="ignore")
        except OSError:
            continue
        for match in defines.finditer(text_of):
            found.setdefault(match[1], set()).add(path)
    sure = {next(iter(paths)) for paths in found.values() if len(paths) == 1}
    return list(sure) if len(sure) == 1 else []


def _ending(known: Sequence[str], word: str) -> list[str]:
    return [path for path in known if path.endswith("/" + word)]
