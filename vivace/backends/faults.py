"""What goes wrong with an upstream server, in OpenAI's words."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from vivace.errors import VivaceError

T = TypeVar("T")

_TOO_LONG = re.compile(
    r"context[_ ](length|window|size)|maximum context|exceed_context|prompt is too long|too many (input )?tokens"
    r"|longer than the (maximum|model|context)",
    re.IGNORECASE,
)
_PASSING = frozenset({408, 409, 425, 429})


class Fault(VivaceError):
    """Why an upstream did not answer. ``status`` is 0 where there was no HTTP answer.

    ``again``: the same request may succeed later or elsewhere. ``down``: the replica itself is in trouble.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "server_error",
        status: int = 0,
        param: str | None = None,
        retry_after: float = 0.0,
        again: bool = False,
        down: bool = False,
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.status = status
        self.retry_after = retry_after
        self.again = again
        self.down = down


def fault_of(status: int, body: bytes, headers: dict[str, str], where: str) -> Fault:
    """The fault of a status and a body, whichever of the usual shapes the body has."""
    message, kind, param = _said(body)
    message = message or f"no reason given (HTTP {status})"
    retry_after = parse_retry_after(headers)
    if status in (400, 413, 422) and (kind == "context_length_exceeded" or _TOO_LONG.search(f"{kind} {message}")):
        return Fault(message, code="context_length_exceeded", status=status, param=param)
    if status in (401, 403):
        return Fault(f"{where} refused its API key (HTTP {status}): {message}", status=status)
    if status == 404 and "model" in message.lower():
        return Fault(f"{where}: {message}", code="model_not_found", status=status, param="model")
    if status == 429:
        if kind == "insufficient_quota":
            return Fault(f"{where}: {message}", code=kind, status=status)
        return Fault(
            f"{where}: {message}", code="rate_limit_exceeded", status=status, retry_after=retry_after, again=True
        )
    if status >= 500:
        code = "server_is_overloaded" if status in (503, 529) else "server_error"
        fault = Fault(f"{where} failed (HTTP {status}): {message}", code=code, status=status, param=param, again=True)
        # A plain 500 may be this request's fault, and must not take the replica away from others.
        fault.retry_after, fault.down = retry_after, status > 500
        return fault
    if status in _PASSING:
        return Fault(f"{where}: {message}", status=status, retry_after=retry_after, again=True)
    return Fault(f"{where}: {message}", code="invalid_prompt", status=status, param=param)


def decoded(decode: Callable[[bytes], T], data: bytes, where: str, what: str) -> T:
    """One event of a stream. Raises :class:`Fault`, which says that it is not ``what`` it should be."""
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Fault(f"{where} sent what is no {what}: {error} in {data[:200]!r}", status=502, again=True) from error


def stream_fault(error: Any, where: str) -> Fault:
    """The fault of an ``error`` object in the middle of a stream."""
    status = error.get("code") if isinstance(error, dict) else None
    status = status if isinstance(status, int) and 400 <= status < 600 else 500
    message, kind, _ = _said(msgspec.json.encode({"error": error}))
    fault = fault_of(status, msgspec.json.encode({"error": error}), {}, where)
    if _TOO_LONG.search(f"{kind} {message}"):
        fault.code, fault.again = "context_length_exceeded", False
    elif kind in ("rate_limit_exceeded", "insufficient_quota", "invalid_prompt", "server_is_overloaded"):
        fault.code, fault.again = kind, kind in ("rate_limit_exceeded", "server_is_overloaded")
    return fault


def parse_retry_after(headers: dict[str, str]) -> float:
    """Seconds of ``retry-after-ms`` or ``retry-after`` (seconds or a date); 0 where neither says anything."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(value) / 1000)
        value = headers.get("retry-after", "")
        if value[:1].isalpha():
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        return max(0.0, float(value)) if value else 0.0
    except (ValueError, TypeError):
        return 0.0


def backoff(attempt: int, retry_after: float) -> float:
    """Seconds to wait before attempt ``attempt`` + 1: what was asked for, else exponential with full jitter."""
    return retry_after or random.uniform(0.1, 1.0) * min(4.0, 0.25 * 2**attempt)


def _said(body: bytes) -> tuple[str, str, str | None]:
    """Message, code or type, and param of an error body: OpenAI's shape, FastAPI's ``detail``, or plain text."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:2000].decode("utf-8", "replace").strip(), "", None
    inner = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(inner, dict):
        return str(inner), "", None
    message = inner.get("message") or inner.get("detail") or ""
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    codes = [inner.get("code"), inner.get("type")]
    param = inner.get("param")
    return text, next((c for c in codes if isinstance(c, str)), ""), param if isinstance(param, str) else None
