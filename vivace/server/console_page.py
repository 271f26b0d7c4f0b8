"""The console: a page, what it loads, and what it shows. The files are served as they are."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from vivace.protocol.errors import Refused
from vivace.server.call import Call

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "edit.js": "text/javascript; charset=utf-8",
}
_HEADERS = {
    # Nothing from elsewhere, nothing inline, in nobody's frame.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


async def page(call: Call) -> None:
    """GET /"""
    await _send(call, "index.html")


async def asset(call: Call) -> None:
    """GET /console/{name}"""
    name: str = call.scope["path_params"]["name"]
    if name not in _TYPES:
        raise Refused(f"There is nothing at {call.path[:200]!r}.", 404, "not_found")
    await _send(call, name)


async def overview(call: Call) -> None:
    """GET /console/overview: what runs, waits and was used, for the caller"""
    await call.json(await call.gateway.overview(call.principal), headers={"cache-control": "no-store"})


async def _send(call: Call, name: str) -> None:
    await call.answer(_read(name), content_type=_TYPES[name], headers=_HEADERS)


@cache
def _read(name: str) -> bytes:
    return (files("vivace.server") / "console" / name).read_bytes()
