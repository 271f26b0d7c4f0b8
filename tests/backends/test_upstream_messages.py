"""Conversations as the messages and requests of upstream servers."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter

from tests.backends.asking import PATCH, SHELL, TEAM, job
from vivace.backends.faults import Fault, backoff, parse_retry_after
from vivace.backends.habits import lessons
from vivace.backends.upstream_chat import chat_body
from vivace.backends.upstream_messages import messages_of
from vivace.backends.upstream_responses import responses_body
from vivace.protocol.requests import Prediction

PLAIN = {"system_for_developer"}
TURN: list[dict[str, Any]] = [
    {"role": "developer", "content": "Base."},
    {"role": "developer", "content": [{"type": "input_text", "text": "Skills."}]},
    {"role": "user", "content": [{"type": "input_text", "text": "List files"}]},
    {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Look."}],
        "encrypted_content": "x",
    },
    {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "c1", "name": "spawn", "namespace": "team", "arguments": '{"cmd": "ls"}'},
    {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin\n"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    {"role": "developer", "content": "Be quick."},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Done"}]},
    {"type": "compaction_trigger"},
    {"type": "something_new", "text": "?"},
    {"role": "user", "content": "And now?"},
]


def test_a_turn_of_an_agent() -> None:
    assert messages_of(job(TURN, [TEAM, PATCH]), PLAIN) == [
        {"role": "system", "content": "Base.\n\nSkills."},
        {"role": "user", "content": "List files"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "team__spawn", "arguments": '{"cmd": "ls"}'}},
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "apply_patch", "arguments": '{"input":"*** Begin\\n"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        {"role": "tool", "tool_call_id": "c2", "content": "Done"},
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "And now?"},
    ]


def test_a_longer_conversation_has_the_shorter_one_as_its_beginning() -> None:
    whole = messages_of(job(TURN, [TEAM, PATCH]), PLAIN)
    for length in (3, 7, 10, 11):
        part = messages_of(job(TURN[:length], [TEAM, PATCH]), PLAIN)
        assert whole[: len(part)] == part


def test_servers_that_want_turns_to_alternate() -> None:
    messages = messages_of(job(TURN, [TEAM, PATCH]), {*PLAIN, "no_late_system", "no_thoughts"})
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert messages[-1]["content"] == "[system]\nBe quick.\n\nAnd now?"
    assert "reasoning_content" not in messages[2]
    messages = messages_of(job(TURN[:3]), {*PLAIN, "no_system"})
    assert messages == [{"role": "user", "content": "[system]\nBase.\n\n[system]\nSkills.\n\nList files"}]


def test_images() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "See"}, image]},
        {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]
    messages = messages_of(job(items, [SHELL]), PLAIN)
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "high"}}
    assert messages[0]["content"] == [{"type": "text", "text": "See"}, shown]
    assert messages[2]["role"] == "tool"
    assert messages[3] == {"role": "user", "content": [shown]}


def test_what_a_request_asks_for() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    asked = job(
        "hi",
        [SHELL, PATCH],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "shell"}]},
        parallel_tool_calls=False,
        temperature=0.5,
        seed=3,
        stop=["END"],
        max_output_tokens=9,
        text=_text(schema),
    )
    body = chat_body(asked, "tiny", PLAIN, {"chat_template_kwargs": {"enable_thinking": False}})
    assert body["tool_choice"] == {"type": "function", "function": {"name": "shell"}}
    assert len(body["tools"]) == 2, "tools are the prompt's beginning and stay"
    assert (body["temperature"], body["seed"], body["stop"], body["max_tokens"]) == (0.5, 3, ["END"], 9)
    assert body["parallel_tool_calls"] is False
    assert body["response_format"]["json_schema"] == {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    changed = chat_body(asked, "tiny", {*PLAIN, "completion_tokens", "no_parallel", "no_usage_option"}, {})
    assert changed["max_completion_tokens"] == 9
    assert not {"max_tokens", "parallel_tool_calls", "stream_options"} & changed.keys()


def test_allowed_tools() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "shell"}]}
    asked = job("hi", [SHELL, PATCH], tool_choice=choice)
    named = {"type": "function", "function": {"name": "shell"}}
    wanted = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    assert chat_body(asked, "tiny", PLAIN, {})["tool_choice"] == wanted
    reduced = chat_body(asked, "tiny", {*PLAIN, "no_allowed_tools"}, {})
    assert [tool["function"]["name"] for tool in reduced["tools"]] == ["shell"]
    assert "tool_choice" not in reduced


def test_the_reference_goes_along_where_it_is_taken() -> None:
    with_tools, without = (job("hi", tools, prediction=Prediction("x = 1")) for tools in ([SHELL], []))
    assert chat_body(with_tools, "tiny", PLAIN, {})["prediction"] == {"type": "content", "content": "x = 1"}
    habits = {*PLAIN, "no_prediction_with_tools"}
    assert "prediction" not in chat_body(with_tools, "tiny", habits, {})
    assert "prediction" in chat_body(without, "tiny", habits, {})
    assert "prediction" not in chat_body(without, "tiny", {*PLAIN, "no_prediction"}, {})


def test_bodies_are_what_openai_takes() -> None:
    asked = job(TURN, [TEAM, PATCH], prediction=Prediction("x"), max_output_tokens=5, temperature=0.1)
    body = chat_body(asked, "tiny", set(), {})
    for message in body["messages"]:
        message.pop("reasoning_content", None)  # what servers of open models have besides
    TypeAdapter(completion_create_params.CompletionCreateParamsStreaming).validate_python(body, strict=False)


def test_a_turn_for_a_responses_server() -> None:
    asked = job(TURN, [TEAM, PATCH], prompt_cache_key="k")
    body = responses_body(asked, "tiny", set(), {})
    assert body["store"] is False
    assert body["prompt_cache_key"] == "k"
    kinds = [item["type"] for item in body["input"]]
    assert kinds == [
        "message", "message", "message", "reasoning", "message", "function_call", "custom_tool_call",
        "function_call_output", "message", "custom_tool_call_output", "message",
    ]  # fmt: skip
    call = body["input"][5]
    assert call == {"type": "function_call", "call_id": "c1", "name": "team__spawn", "arguments": '{"cmd": "ls"}'}
    assert "encrypted_content" not in body["input"][3]
    assert [tool["type"] for tool in body["tools"]] == ["function", "custom"]
    assert body["tools"][1]["format"]["definition"].startswith("start")
    plain = responses_body(asked, "tiny", {"no_custom_tools", "system_for_developer", "no_thoughts"}, {})
    assert [item["type"] for item in plain["input"]].count("function_call") == 2
    assert "custom" not in str(plain)
    assert plain["input"][0]["role"] == "system"


@pytest.mark.parametrize(
    ("said", "habit"),
    [
        ("Unexpected message role.", "system_for_developer"),
        ("'developer' is not one of ['system', 'assistant', 'user']", "system_for_developer"),
        ("System message must be at the beginning.", "no_late_system"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "no_late_system"),
        ("System role not supported", "no_system"),
        ("Unknown parameter: 'parallel_tool_calls'.", "no_parallel"),
        (
            "Unsupported parameter: 'max_tokens' is not supported; use 'max_completion_tokens' instead.",
            "completion_tokens",
        ),
        ("'type' of tool must be 'function'", "no_custom_tools"),
        ("Unrecognized request argument supplied: prediction", "no_prediction"),
    ],
)
def test_refusals_teach(said: str, habit: str) -> None:
    assert habit in lessons(Fault(said, status=400), set())
    assert habit not in lessons(Fault(said, status=400), {habit})
    assert lessons(Fault(said, status=403), set()) == []


@pytest.mark.parametrize("said", ["temperature must be below 2", "seed: unknown", "response_format is unsupported"])
def test_refusals_of_meaning_teach_nothing(said: str) -> None:
    assert lessons(Fault(said, status=400), set()) == []


def test_when_to_try_again() -> None:
    assert parse_retry_after({"retry-after": "2"}) == 2
    assert parse_retry_after({"retry-after-ms": "20", "retry-after": "9"}) == 0.02
    assert parse_retry_after({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}) == 0
    assert parse_retry_after({"retry-after": "soon"}) == 0
    assert parse_retry_after({"retry-after": "-3"}) == 0
    assert backoff(0, 7) == 7
    assert all(0 < backoff(attempt, 0) <= 4 for attempt in range(40))


def _text(form: dict[str, Any]) -> Any:
    import msgspec

    from vivace.protocol.options import TextOptions

    return msgspec.convert({"format": form}, TextOptions)
