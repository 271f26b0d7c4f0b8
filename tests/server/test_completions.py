"""The older Completions: requests in, events out, without a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types import Completion

from tests.server.scripted import Answer
from tests.server.test_chat import chunks as any_chunks
from vivace.protocol.completions import decode_completion_request
from vivace.protocol.errors import BadRequest
from vivace.protocol.requests import ResponseRequest
from vivace.server.completions import ChunkWriter, completion, to_request


def translated(**body: Any) -> ResponseRequest:
    return to_request(decode_completion_request(json.dumps({"model": "m", **body})))


def test_a_prompt_is_raw_text_and_a_suffix_makes_a_gap() -> None:
    assert translated(prompt="def f").prompt == {"raw": "def f"}
    assert translated(prompt=["def f"], suffix="").prompt == {"fim": {"prefix": "def f", "suffix": ""}}
    assert translated(suffix="x").prompt == {"fim": {"prefix": "", "suffix": "x"}}
    request = translated(prompt="p", stop=["\n"], max_tokens=9, temperature=0)
    assert (request.stop, request.max_output_tokens, request.temperature, request.store) == (["\n"], 9, 0, False)
    assert translated(prompt="p").max_output_tokens == 16


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": "p", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "p", "logprobs": 3}, "logprobs"),
        ({"prompt": "p", "best_of": 2}, "best_of"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        translated(**body)
    assert refusal.value.param == param


def test_a_stream_and_its_whole_say_the_same() -> None:
    answer = Answer(ResponseRequest(model="m"))
    events = [*answer.begin(), *answer.message(["a", "b"]), *answer.incomplete("max_output_tokens")]
    written = ChunkWriter(usage=True, before="p: ")(events)
    found = [json.loads(line[6:]) for line in written.decode().split("\n") if line.startswith("data: {")]
    for chunk in found:
        Completion.model_validate(
            chunk | {"choices": [c | {"finish_reason": c["finish_reason"] or "stop"} for c in chunk["choices"]]}
        )
    text = "".join(choice["text"] for chunk in found for choice in chunk["choices"])
    whole = json.loads(msgspec.json.encode(completion(answer.response, "p: ")))
    assert text == whole["choices"][0]["text"] == "p: ab"
    assert found[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert found[-1]["usage"] == whole["usage"]
    assert written.endswith(b"data: [DONE]\n\n")


def test_a_failure_in_the_stream() -> None:
    answer = Answer(ResponseRequest(model="m"))
    written = ChunkWriter(usage=True)([*answer.begin(), *answer.failed("server_error", "worker lost")])
    assert any_chunks(written)[-1]["error"]["message"] == "worker lost"
