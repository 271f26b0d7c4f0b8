"""Who comes in: keys, and for browsers the names that they may use."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from vivace.protocol.contracts import Principal
from vivace.protocol.errors import Refused
from vivace.server.call import Call
from vivace.server.options import is_loopback


async def admit(call: Call, public: bool) -> None:
    """Set the call's principal, or refuse it.

    Without keys, whoever reaches the loopback address is let in, and so would every web page be that a browser on
    this machine shows: by a name of its own that resolves to 127.0.0.1, or by posting across origins. So such a door
    answers to loopback names only, and to pages of its own origin.
    """
    authenticate = call.door.authenticate
    if authenticate is None:
        _check_host(call)
        _check_origin(call)
        call.principal = call.known_as(Principal())
        return
    if public:
        return
    secret = _secret(call)
    if secret is None:
        raise Refused("No API key: send 'Authorization: Bearer KEY'.", 401, "missing_api_key")
    principal = await authenticate(secret)
    if principal is None:
        raise Refused("The API key is not valid here, revoked or expired.", 401, "invalid_api_key")
    call.principal = call.known_as(principal)


async def preflight(call: Call) -> None:
    """Answer a browser that asks whether a page of another origin may call."""
    if call.headers.get("origin") not in call.door.options.allow_origins and "*" not in call.door.options.allow_origins:
        raise Refused("Pages of this origin may not call here.", 403, "origin_not_allowed")
    await call.answer(
        b"",
        204,
        headers={
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-allow-headers": call.headers.get("access-control-request-headers", "authorization"),
            "access-control-max-age": "600",
        },
    )


def _secret(call: Call) -> str | None:
    scheme, _, value = call.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return call.headers.get("x-api-key") or None


def _check_host(call: Call) -> None:
    options = call.door.options
    if options.uds is not None:
        return  # no browser gets here
    name = _host_name(call.headers.get("host", ""))
    if not is_loopback(name) and name not in options.allow_hosts:
        raise Refused(
            f"Without API keys the server answers to localhost, not to {name[:200]!r}.",
            403,
            "host_not_allowed",
            hint="Make a key with 'vivace keys create', or allow the name with --allow-host.",
        )


@lru_cache(maxsize=64)
def _host_name(header: str) -> str:
    return _split(f"//{header}").hostname or ""


def _check_origin(call: Call) -> None:
    origin = call.headers.get("origin")
    options = call.door.options
    if origin is None or "*" in options.allow_origins or origin in options.allow_origins:
        return
    if _split(origin).netloc != call.headers.get("host"):
        raise Refused("Pages of another origin may not call a server without API keys.", 403, "origin_not_allowed")


def _split(url: str) -> SplitResult:
    """The parts of an address; of none when it is not one."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
