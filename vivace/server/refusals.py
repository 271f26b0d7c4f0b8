"""Every refusal as an HTTP answer, in the words of the protocol that was spoken."""

from __future__ import annotations

from vivace.errors import UsageError, VivaceError
from vivace.protocol.errors import (
    BadRequest,
    Refused,
    anthropic_error_body,
    anthropic_error_type,
    error_body,
    error_type,
)
from vivace.protocol.items import ResponseError
from vivace.server.call import Call

_STATUS = {
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "slow_down": 429,
    "model_not_found": 404,
    "model_unavailable": 503,
    "database_unavailable": 503,
    "server_is_overloaded": 503,
}


def status_of(error: VivaceError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, BadRequest):
        return error.status
    return _STATUS.get(error.code, 400 if isinstance(error, UsageError) else 500)


def failed(error: ResponseError | None) -> BadRequest:
    """The refusal that a response which failed before anything was sent makes."""
    if error is None:
        return BadRequest("The response failed.", code="server_error", status=500)
    return BadRequest(error.message, code=error.code, status=_STATUS.get(error.code, 500))


async def refuse(call: Call, error: VivaceError) -> None:
    """Answer with ``error``."""
    status = status_of(error)
    call.door.metrics.failed(error.code, status)
    headers = dict(error.headers) if isinstance(error, Refused) else {}
    kind = error.kind if isinstance(error, Refused) else None
    message = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
    if status == 401:
        headers.setdefault("www-authenticate", "Bearer")
    if call.dialect == "anthropic":
        await call.json(anthropic_error_body(message, anthropic_error_type(status), call.request_id), status, headers)
    else:
        await call.json(error_body(message, kind or error_type(status), error.code, error.param), status, headers)
