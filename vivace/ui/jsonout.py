"""The one JSON object of ``vivace edit --json``, printed on success and on failure alike."""

from __future__ import annotations

import json
from typing import Any

from vivace.agent.result import EditResult
from vivace.errors import VivaceError


def report(
    *, names: list[str], model: str, result: EditResult | None, error: VivaceError | None, code: int, wall: float
) -> str:
    """One line of JSON.

    ``files`` has one entry each: ``path``, ``changed`` (on disk, or would be without ``--dry-run``), ``diff``
    (also of what was not written), ``lines_changed``, ``reason``, ``asked`` (what was asked for, round by round: a
    dialect, ``whole function``, ``whole file``), ``rungs`` (how each hunk was found: ``exact``, ``part of a line``,
    ``trailing space``, ``indentation``, ``punctuation``, ``anchor``, ``end of file``; empty where the code was written
    anew). Speeds that were not measured are ``null``; ``error``
    is ``null`` or has ``code``, ``message``, ``hint`` and ``param``.
    """
    outcomes = {file.source.name: file for file in result.files} if result else {}
    files = []
    for name in names:
        outcome = outcomes.get(name)
        patch = outcome.patch if outcome else None
        reason = outcome.reason if outcome else error.message if error else "not reached"
        files.append(
            {
                "path": name,
                "changed": patch is not None and code == 0,
                "diff": patch.diff if patch else "",
                "lines_changed": patch.lines_changed if patch else 0,
                "reason": reason,
                "asked": outcome.asked if outcome else [],
                "rungs": list(outcome.rungs) if outcome else [],
            }
        )
    told: dict[str, Any] = {
        "files": files,
        "model": result.card.name if result else model,
        "prompt_tokens": result.prompt_tokens if result else 0,
        "output_tokens": result.output_tokens if result else 0,
        "ttft_s": _rounded(result.ttft) if result else None,
        "decode_tok_s": _rounded(result.decode_rate, 2) if result else None,
        "draft_accepted": _rounded(result.draft_accepted) if result else None,
        "seconds": _rounded(result.seconds) if result else None,
        "wall_seconds": _rounded(wall),
        "exit": code,
        "error": _error(error),
    }
    return json.dumps(told)  # ASCII: safe in every locale and for names that are no UTF-8


def _error(error: VivaceError | None) -> dict[str, str | None] | None:
    if error is None:
        return None
    return {"code": error.code, "message": error.message, "hint": error.hint, "param": error.param}


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else round(value, digits)
