"""In which form a model writes edits best: told by the catalogue, else by family and size."""

from __future__ import annotations

import re
from typing import Literal

from vivace.model_size import SMALL, billions

EditDialect = Literal["whole-file", "search-replace", "line-anchors", "apply-patch"]
"""The file or function anew, search and replace blocks, commands on lines that are named by short hashes, or OpenAI's
patch format (V4A)."""

_OPENAI = re.compile(r"(?:^|[/:_-])(?:gpt-|chatgpt|codex|o[1-9](?:$|-))", re.IGNORECASE)


def edit_dialect(name: str, parameters: int = 0) -> EditDialect:
    """How a model writes edits best, by its family and size. ``parameters`` are taken from the name where they are 0.

    OpenAI's own models were trained on their patch format, on which most others fail. Small models write whole files.
    The rest, hosted models whose names tell no size among them, write search and replace blocks.
    """
    if _OPENAI.search(name):
        return "apply-patch"
    size = parameters / 1e9 if parameters else billions(name)
    return "whole-file" if size is not None and size < SMALL else "search-replace"
