"""The methods beside the protocol's own, ``_vivace/...``: what version 1 of it has no word for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from acp.exceptions import RequestError

from vivace.errors import UsageError
from vivace.ui.acp import workers
from vivace.ui.acp.session import Cancelled, Session
from vivace.ui.mentioned import mentioned

Params = dict[str, Any]
Answer = dict[str, Any]


async def _steer(session: Session, params: Params) -> Answer:
    return _said(session, params, "steer")


async def _queue(session: Session, params: Params) -> Answer:
    return _said(session, params, "queue")


async def _undo(session: Session, params: Params) -> Answer:
    await session.open.undo()
    return {}


async def _redo(session: Session, params: Params) -> Answer:
    await session.open.redo()
    return {}


async def _interrupt(session: Session, params: Params) -> Answer:
    return {"interrupted": await session.open.interrupt()}


async def _background(session: Session, params: Params) -> Answer:
    text = _string(params, "text")
    return {"worker": await session.open.background(text, mentioned(text, session.root))}


async def _workers(session: Session, params: Params) -> Answer:
    return {"workers": workers.listed(session), "jobs": workers.jobs_listed(session)}


async def _stop(session: Session, params: Params) -> Answer:
    await workers.stop(session, _string(params, "worker"))
    return {}


async def _diff(session: Session, params: Params) -> Answer:
    found = await workers.preview(session, _string(params, "worker"))
    return {"diff": found.diff, "conflicts": list(found.conflicts)}


async def _accept(session: Session, params: Params) -> Answer:
    try:
        paths = await workers.accept(session, _string(params, "worker"))
    except Cancelled:
        paths = None
    return {"accepted": paths is not None, "changed": list(paths or ())}


METHODS: dict[str, Callable[[Session, Params], Awaitable[Answer]]] = {
    "vivace/steer": _steer,
    "vivace/queue": _queue,
    "vivace/interrupt": _interrupt,
    "vivace/undo": _undo,
    "vivace/redo": _redo,
    "vivace/background": _background,
    "vivace/workers": _workers,
    "vivace/stop": _stop,
    "vivace/diff": _diff,
    "vivace/accept": _accept,
}


def _said(session: Session, params: Params, verb: Any) -> Answer:
    """Add to the turn that runs, or to the next one; there has to be one."""
    text = _string(params, "text")
    if session.open.idle:
        raise UsageError("no turn is running", hint="Send it as a prompt.", code="not_running")
    letter = session.open.say(text, verb, mentioned(text, session.root))
    return {"accepted": True, "message": letter.number}


def _string(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RequestError.invalid_params({name: "a string"})
    return value
