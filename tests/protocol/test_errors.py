"""The bodies of refusals, as the three protocols have them."""

from __future__ import annotations

import json

import pytest
from openai.types.responses import ResponsesServerEvent
from pydantic import TypeAdapter

from vivace.errors import VivaceError
from vivace.protocol.errors import (
    BadRequest,
    anthropic_error_body,
    anthropic_error_type,
    error_body,
    error_frame,
    error_type,
)
from vivace.protocol.events import encode


def test_bad_request_is_an_error_of_the_user() -> None:
    error = BadRequest("Too long.", "input", "context_length_exceeded")
    assert isinstance(error, VivaceError)
    assert (error.message, error.param, error.code, error.status) == (
        "Too long.", "input", "context_length_exceeded", 400
    )  # fmt: skip


def test_bodies() -> None:
    assert error_body("m", "rate_limit_error", "rate_limit_exceeded") == {
        "error": {"message": "m", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    }
    assert anthropic_error_body("m", "api_error") == {"type": "error", "error": {"type": "api_error", "message": "m"}}
    assert anthropic_error_body("m", "api_error", "req_1")["request_id"] == "req_1"


@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (404, "not_found_error", "not_found_error"),
        (422, "invalid_request_error", "invalid_request_error"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (503, "server_error", "overloaded_error"),
    ],
)
def test_types_by_status(status: int, openai: str, anthropic: str) -> None:
    assert (error_type(status), anthropic_error_type(status)) == (openai, anthropic)


def test_the_frame_has_an_integer_status_and_its_headers_twice() -> None:
    frame = error_frame("Slow down.", 429, "rate_limit_exceeded", headers={"retry-after": "2"}, stream_id="a")
    assert json.loads(encode(frame)) == {
        "type": "error", "status": 429, "stream_id": "a", "headers": {"retry-after": "2"},
        "error": {
            "type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None,
            "headers": {"retry-after": "2"},
        },
    }  # fmt: skip
    assert TypeAdapter(ResponsesServerEvent).validate_json(encode(frame)).status == 429
