"""OpenAI's Python SDK over HTTP, against a server in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.clients.harness import Server, until

pytestmark = pytest.mark.clients

FILE = "".join(f"line number {n} of the file\n" for n in range(40))

RULES: list[dict[str, Any]] = [
    {"when": {"output": "sunny"}, "steps": [{"text": "It is sunny."}]},
    {"when": {"user": "weather"}, "steps": [{"call": "weather", "arguments": {"city": "Rome"}}]},
    {"when": {"user": "summary of this"}, "steps": [{"text": "They spoke of birds."}]},
    {"when": {"said": "They spoke of birds"}, "steps": [{"text": "Of birds."}]},
    {"when": {"user": "the file"}, "steps": [{"text": FILE.replace("number 7 ", "number seven ")}]},
    {"when": {"user": "as data"}, "steps": [{"text": '{"name":"robin","wings":2}'}]},
    {"when": {"user": "think"}, "steps": [{"reasoning": "Let me see. "}, {"text": "Yes."}]},
    {"when": {"user": "slowly"}, "steps": [{"tokens": 200, "pause": 0.01}]},
    {"when": {"user": "for ever"}, "steps": [{"text": "So it "}, {"hang": True}]},
    {"when": {"user": "too long"}, "steps": [{"error": "context_length_exceeded", "message": "Too long."}]},
    {"when": {"user": "break"}, "steps": [{"drop": True}]},
    {"when": {"turn": 2}, "steps": [{"text": "Hello again."}]},
    {"steps": [{"text": "Hello there."}]},
]

WEATHER: Any = {
    "type": "function", "name": "weather", "strict": True, "description": "What the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                   "additionalProperties": False},
}  # fmt: skip


class Bird(BaseModel):
    name: str
    wings: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), RULES) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


def test_the_printed_lines_run_as_they_are(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    exec(server.settings("OpenAI's Python SDK"), {})
    assert capsys.readouterr().out == "Hello there.\n"


def test_raw_events_and_the_whole_are_one(client: OpenAI) -> None:
    events = list(client.responses.create(model="paced", input="think", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == last.response.output
    assert [item.type for item in done] == ["reasoning", "message"]
    assert last.response.usage is not None
    assert last.response.usage.output_tokens_details.reasoning_tokens > 0
    whole = client.responses.create(model="paced", input="think")
    assert (whole.output_text, whole.status, whole._request_id is not None) == ("Yes.", "completed", True)


def test_the_stream_helper_puts_the_answer_together(client: OpenAI) -> None:
    with client.responses.stream(model="paced", input="slowly") as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == deltas
    assert len(deltas) > 500


def test_a_tool_round_trip_with_the_helper(client: OpenAI) -> None:
    with client.responses.stream(model="paced", input="the weather?", tools=[WEATHER]) as stream:
        arguments = "".join(event.delta for event in stream if event.type == "response.function_call_arguments.delta")
        first = stream.get_final_response()
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, call.arguments, call.parsed_arguments) == ("weather", arguments, {"city": "Rome"})
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = client.responses.create(model="paced", input=[output], tools=[WEATHER], previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("It is sunny.", first.id)
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= (first.usage.input_tokens if first.usage else 1 << 30)


def test_structured_output_is_parsed(client: OpenAI, server: Server) -> None:
    parsed = client.responses.parse(model="paced", input="a bird as data", text_format=Bird)
    assert parsed.output_parsed == Bird(name="robin", wings=2)
    assert server.requests()[-1]["text"]["format"]["type"] == "json_schema"
    chat = client.chat.completions.parse(
        model="paced", messages=[{"role": "user", "content": "a bird as data"}], response_format=Bird
    )
    assert chat.choices[0].message.parsed == Bird(name="robin", wings=2)


def test_predicted_outputs_are_counted(client: OpenAI) -> None:
    prediction: Any = {"type": "content", "content": FILE}
    response = client.responses.create(model="paced", input="the file", extra_body={"prediction": prediction})
    assert response.usage is not None
    accepted = response.usage.output_tokens_details.model_extra["accepted_prediction_tokens"]  # type: ignore[index]
    assert 0.5 * response.usage.output_tokens < accepted < response.usage.output_tokens
    messages: Any = [{"role": "user", "content": "the file"}]
    for content in (FILE, [{"type": "text", "text": FILE}]):
        given: Any = {"type": "content", "content": content}
        chat = client.chat.completions.create(model="paced", messages=messages, prediction=given)
        assert chat.usage is not None
        assert chat.usage.completion_tokens_details is not None
        assert chat.usage.completion_tokens_details.accepted_prediction_tokens == accepted
        assert (chat.usage.completion_tokens_details.rejected_prediction_tokens or 0) > 0
    streamed = client.chat.completions.create(
        model="paced", messages=messages, prediction=prediction, stream=True, stream_options={"include_usage": True}
    )
    usage = list(streamed)[-1].usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.accepted_prediction_tokens == accepted


def test_a_stored_response_is_read_paged_and_deleted(client: OpenAI) -> None:
    first = client.responses.create(model="paced", input="hi")
    second = client.responses.create(model="paced", input="and now?", previous_response_id=first.id)
    assert second.output_text == "Hello again."
    assert client.responses.retrieve(second.id).output == second.output
    items = list(client.responses.input_items.list(second.id, limit=1, order="asc"))
    assert [item.type for item in items] == ["message"] * 3
    assert len({item.id for item in items}) == 3
    client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(second.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="paced", input="?", previous_response_id=second.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


def test_counting_and_compacting(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="paced", input="Tell me of birds, and of fish.")
    asked = client.responses.create(model="paced", input="Tell me of birds, and of fish.")
    assert asked.usage is not None
    assert counted.input_tokens == asked.usage.input_tokens
    given: Any = [{"role": "user", "content": "birds"}, {"role": "assistant", "content": "They fly."}]
    compacted = client.responses.compact(model="paced", input=given)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    window: Any = [item.to_dict() for item in compacted.output]
    follow = client.responses.create(model="paced", input=[*window, {"role": "user", "content": "Of what?"}])
    assert follow.output_text == "Of birds."


def test_a_background_response_is_followed_from_any_event_and_cancelled(client: OpenAI, server: Server) -> None:
    started = client.responses.create(model="paced", input="slowly", background=True)
    assert started.status in ("queued", "in_progress")
    with client.responses.retrieve(started.id, stream=True) as stream:
        first = [event for event, _ in zip(stream, range(6), strict=False)]
    with client.responses.retrieve(started.id, stream=True, starting_after=5) as stream:
        rest = list(stream)
    assert [event.sequence_number for event in [*first, *rest]] == list(range(len(first) + len(rest)))
    assert rest[-1].type == "response.completed"
    assert client.responses.retrieve(started.id).output_text == rest[-1].response.output_text
    endless = client.responses.create(model="paced", input="for ever", background=True)
    until(lambda: client.responses.retrieve(endless.id).status == "in_progress")
    assert client.responses.cancel(endless.id).status == "cancelled"
    assert client.responses.retrieve(endless.id).status == "cancelled"


def test_closing_a_stream_ends_the_response(client: OpenAI, server: Server) -> None:
    with client.responses.create(model="paced", input="for ever", stream=True) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                break
        assert server.running()
    until(lambda: not server.running(), 1.0, "the end of what nobody reads")


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "model_not_found"),
        ({"input": "too long"}, openai.BadRequestError, "context_length_exceeded"),
        ({"temperature": 9}, openai.BadRequestError, None),
        ({"previous_response_id": "resp_none"}, openai.BadRequestError, "previous_response_not_found"),
        ({"input": "break"}, openai.InternalServerError, "server_error"),
    ],
)
def test_errors_have_their_classes(client: OpenAI, body: dict[str, Any], kind: type[Any], code: str | None) -> None:
    with pytest.raises(kind) as refused:
        client.responses.create(**{"model": "paced", "input": "hi", **body})
    assert refused.value.request_id
    assert code in (None, refused.value.code)


def test_a_failure_in_a_stream_is_an_event_and_the_last_one(client: OpenAI) -> None:
    events = list(client.responses.create(model="paced", input="break", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.code == "server_error"


def test_many_at_once(server: Server) -> None:
    async def ask() -> list[str]:
        async with AsyncOpenAI(base_url=server.base_url, api_key="none") as client:

            async def one() -> str:
                async with client.responses.stream(model="paced", input="slowly") as stream:
                    return (await stream.get_final_response()).output_text

            return await asyncio.gather(*(one() for _ in range(12)))

    assert len(set(asyncio.run(ask()))) == 1


@pytest.mark.parametrize("how", ["killed", "told to end"])
def test_a_response_is_continued_and_read_after_a_restart(
    tmp_path: Path, how: Literal["killed", "told to end"], serve: Callable[..., Server]
) -> None:
    server = serve(*RULES)
    with OpenAI(base_url=server.base_url, api_key="none") as client:
        first = client.responses.create(model="paced", input="hi")
        second = client.responses.create(model="paced", input="and now?", previous_response_id=first.id)
        server.kill() if how == "killed" else server.stop()
        server.start()
        assert client.responses.retrieve(second.id).output == second.output
        third = client.responses.create(model="paced", input="and then?", previous_response_id=second.id)
        assert third.previous_response_id == second.id
        items = list(client.responses.input_items.list(third.id, order="asc"))
    assert [item.type for item in items] == ["message"] * 5


def test_a_limit_names_its_meter_and_is_waited_for(tmp_path: Path, serve: Callable[..., Server]) -> None:
    (tmp_path / "tiers.toml").write_text(
        'default_plan = "small"\n[[tier]]\nid = "default"\n[[plan]]\nid = "small"\n'
        '[[plan.window]]\nmeter = "requests"\nseconds = 2\nlimit = 1\n'
    )
    server = serve(*RULES, settings={"VIVACE_TIERS_FILE": str(tmp_path / "tiers.toml")})
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        client.responses.create(model="paced", input="hi")
        with pytest.raises(openai.RateLimitError) as refused:
            client.responses.create(model="paced", input="hi")
        assert "1 requests in 2s for paced" in refused.value.message
        assert refused.value.message.count("try again in") == 1
        assert 0 < float(refused.value.response.headers["retry-after"]) <= 3
        assert refused.value.response.headers["x-ratelimit-limit-requests"] == "1"
        assert client.with_options(max_retries=2).responses.create(model="paced", input="hi").status == "completed"
