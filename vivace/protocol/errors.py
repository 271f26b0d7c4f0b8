"""What a caller did wrong, and the bodies in which the three protocols say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.events import ErrorBody, ErrorEvent

T = TypeVar("T")

_LONGEST_MESSAGE = 400
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class BadRequest(VivaceError):
    """A request that cannot be understood. ``status`` is HTTP's; ``stream_id`` is the lane of a WebSocket frame, where
    it could be read."""

    def __init__(
        self, message: str, param: str | None = None, code: str = "invalid_value", status: int = 400, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint, code=code, param=param, exit_code=2)
        self.status = status
        self.stream_id: str | None = None


class Refused(BadRequest):
    """A request that is understood and not served: unknown model, no quota, no capacity.

    ``headers`` go with the answer, such as ``retry-after``; ``kind`` is OpenAI's ``type`` where the status alone does
    not say it.
    """

    def __init__(
        self,
        message: str,
        status: int,
        code: str,
        param: str | None = None,
        *,
        hint: str = "",
        headers: dict[str, str] | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(message, param, code, status, hint)
        self.headers = headers or {}
        self.kind = kind


def decoded(decode: Callable[[bytes | str], T], body: bytes | str) -> T:
    """``decode(body)``, where every fault of the body is a :class:`BadRequest` that names the parameter."""
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise bad_request(error) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadRequest(f"The body is no valid JSON: {error}.", code="invalid_json") from None
    except RecursionError:
        raise BadRequest("The body is nested too deeply.", code="invalid_json") from None


def bad_request(error: msgspec.ValidationError) -> BadRequest:
    """A failed validation in OpenAI's words: the parameter's path, and a code that says how it is wrong."""
    text, *places = str(error).split(" - at `$")
    path = "".join(place.rstrip("`") for place in reversed(places)).lstrip(".").replace("[...]", "")
    if text.startswith("Object missing required field `"):
        name = text.split("`")[1]
        path = f"{path}.{name}" if path else name
        return BadRequest(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
    text = text.replace("`", "")
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "..."
    if not path:
        return BadRequest(f"Invalid body: {text[:1].lower()}{text[1:]}.", None, "invalid_type")
    if path == "stream_id":
        return BadRequest("'stream_id' takes 1 to 256 letters, digits, '_', '-' or '.'.", path, "invalid_stream_id")
    if ", got " in text:
        return BadRequest(f"Invalid type for '{path}': {text[:1].lower()}{text[1:]}.", path, "invalid_type")
    return BadRequest(f"Invalid value for '{path}': {text[:1].lower()}{text[1:]}.", path)


def error_type(status: int) -> str:
    """OpenAI's ``type`` of an error of this HTTP status."""
    if status == 429:
        return "rate_limit_error"
    if status >= 500:
        return "server_error"
    return {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}.get(
        status, "invalid_request_error"
    )


def error_body(
    message: str, type: str = "invalid_request_error", code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """The body of a refused request, as OpenAI's HTTP API has it."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def anthropic_error_type(status: int) -> str:
    """Anthropic's ``type`` of an error of this HTTP status."""
    return _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def anthropic_error_body(message: str, type: str, request_id: str | None = None) -> dict[str, Any]:
    """The body of a refused request, as Anthropic's Messages API has it."""
    body: dict[str, Any] = {"type": "error", "error": {"type": type, "message": message}}
    return body if request_id is None else {**body, "request_id": request_id}


def error_frame(
    message: str,
    status: int,
    code: str | None = None,
    param: str | None = None,
    *,
    type: str | None = None,
    headers: dict[str, str] | None = None,
    stream_id: str | None = None,
) -> ErrorEvent:
    """The frame of a refused request on a WebSocket; the headers stand in both places that Codex CLI reads."""
    body = ErrorBody(message, type or error_type(status), code, param, headers)
    return ErrorEvent(error=body, status=status, headers=headers, stream_id=stream_id)
