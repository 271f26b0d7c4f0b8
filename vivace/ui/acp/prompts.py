"""The blocks of a prompt as text and named files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp.schema import EmbeddedResourceContentBlock, ResourceContentBlock, TextContentBlock, TextResourceContents

from vivace.errors import UsageError
from vivace.ui.mentioned import mentioned, written


def read(blocks: Sequence[Any], root: Path) -> tuple[str, tuple[str, ...]]:
    """Text and files. Links to files of the workspace become mentions; contents of other resources are put in.

    Raises :class:`UsageError` (``unsupported_content``) for images and sounds.
    """
    parts = []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                parts.append(text)
            case ResourceContentBlock(uri=uri):
                parts.append(_mention(uri, root) or uri)
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                # The file on disk is what is edited; what the editor holds unsaved would be lost by that.
                inside = _mention(resource.uri, root)
                parts.append(inside or f"\n{resource.uri}:\n```\n{resource.text}\n```\n")
            case _:
                raise UsageError(f"{block.type} content cannot be read", code="unsupported_content", param="prompt")
    text = "".join(parts)
    return text, mentioned(text, root)


def _mention(uri: str, root: Path) -> str:
    """How a file of the workspace is named in a text; empty for anything else."""
    url = urlsplit(uri)
    if url.scheme not in ("", "file"):
        return ""
    path = Path(unquote(url.path))
    try:
        inside = path.resolve().relative_to(root.resolve()) if path.is_absolute() else path
    except ValueError:
        return ""
    return f"{written(inside.as_posix())} "
