"""OpenAI's own client against the real service on a paced backend: HTTP, streams, and the WebSocket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.server.serving import KEY, Running, by_key, paced, serving
from vivace.backends.paced_script import Rule, Script, Step, When

PATCH = "*** Begin Patch\n*** Delete File: old.py\n*** End Patch\n"
TEXT = "The answer is forty-two. " * 8
SCRIPT = Script(
    [
        Rule(steps=[Step(call="read", arguments={"path": "a.py"})], when=When(user="use the tool")),
        Rule(steps=[Step(text="It says hello.")], when=When(output="hello")),
        Rule(steps=[Step(call="apply_patch", input=PATCH)], when=When(user="patch it")),
        Rule(steps=[Step(reasoning="Let me think."), Step(text="Thought.")], when=When(user="think")),
        Rule(steps=[Step(error="rate_limit_exceeded", message="try again in 1s")], when=When(user="fail")),
        Rule(steps=[Step(tokens=2000)], when=When(user="long")),
        Rule(steps=[Step(text=TEXT)]),
    ]
)
READ = {
    "type": "function",
    "name": "read",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
APPLY = {"type": "custom", "name": "apply_patch", "description": "Edit files."}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(lambda: paced(3000.0, 0.005, SCRIPT), by_key) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key=KEY, max_retries=0, timeout=20) as found:
        yield found


def test_responses_whole_and_streamed(client: OpenAI) -> None:
    whole = client.responses.create(model="paced", input="hi", instructions="Be brief.")
    assert (whole.status, whole.output_text) == ("completed", TEXT)
    assert whole.usage is not None and whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert whole._request_id is not None and whole._request_id.startswith("req_")
    with client.responses.stream(model="paced", input="hi") as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert deltas == TEXT == stream.get_final_response().output_text


def test_a_tool_round_trip_on_a_chain(client: OpenAI) -> None:
    first = client.responses.create(model="paced", input="use the tool", tools=[READ])  # type: ignore[list-item]
    call = first.output[0]
    assert call.type == "function_call" and json.loads(call.arguments) == {"path": "a.py"}
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "hello"}]
    second = client.responses.create(
        model="paced",
        input=output,
        previous_response_id=first.id,
        tools=[READ],  # type: ignore[list-item]
    )
    assert second.output_text == "It says hello."
    assert second.usage is not None and second.usage.input_tokens_details.cached_tokens > 0


def test_custom_tools_and_reasoning(client: OpenAI) -> None:
    found = client.responses.create(model="paced", input="patch it", tools=[APPLY])  # type: ignore[list-item]
    call = found.output[-1]
    assert call.type == "custom_tool_call" and call.input == PATCH
    thought = client.responses.create(model="paced", input="think", include=["reasoning.encrypted_content"])
    assert [item.type for item in thought.output] == ["reasoning", "message"]
    assert thought.output[0].type == "reasoning" and thought.output[0].encrypted_content


def test_stored_responses(client: OpenAI) -> None:
    made = client.responses.create(model="paced", input="hi", store=True)
    assert client.responses.retrieve(made.id).output_text == TEXT
    items = list(client.responses.input_items.list(made.id))
    assert len(items) == 1 and items[0].type == "message"
    assert client.responses.input_tokens.count(model="paced", input="hi").input_tokens > 0
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_background_response_can_be_followed_and_cancelled(client: OpenAI) -> None:
    made = client.responses.create(model="paced", input="a long one", background=True, store=True)
    assert made.status in ("queued", "in_progress")
    events = client.responses.retrieve(made.id, stream=True, starting_after=0)
    assert next(iter(events)).sequence_number == 1
    events.close()
    assert client.responses.cancel(made.id).status in ("cancelled", "incomplete")


def test_errors_have_their_classes(client: OpenAI, server: Running) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        client.responses.create(model="pace", input="hi")
    assert refusal.value.code == "model_not_found" and "paced" in str(refusal.value)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="paced", input="hi", previous_response_id="resp_no")
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="paced", input="fail")
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=server.base_url, api_key="no", max_retries=0).models.list()


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["paced"]
    assert client.models.retrieve("paced").owned_by == "vivace"


def test_chat_completions(client: OpenAI) -> None:
    asked: Any = [{"role": "system", "content": "s"}, {"role": "user", "content": "use the tool"}]
    tool: Any = {"type": "function", "function": {name: READ[name] for name in ("name", "parameters")}}
    with client.chat.completions.stream(model="paced", messages=asked, tools=[tool]) as stream:
        for _ in stream:
            pass
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"path": "a.py"}
    asked += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "hello"},
    ]
    answer = client.chat.completions.create(
        model="paced", messages=asked, tools=[tool], prediction={"type": "content", "content": "It says hello."}
    )
    assert answer.choices[0].message.content == "It says hello."
    details = answer.usage.completion_tokens_details if answer.usage else None
    assert details is not None and details.accepted_prediction_tokens
    thought = client.chat.completions.create(model="paced", messages=[{"role": "user", "content": "think"}])
    assert thought.choices[0].message.model_extra == {"reasoning_content": "Let me think."}
    with pytest.raises(openai.APIError):
        for _ in client.chat.completions.create(
            model="paced", messages=[{"role": "user", "content": "fail"}], stream=True
        ):
            pass


def test_fill_in_the_middle(client: OpenAI) -> None:
    answer = client.completions.create(model="paced", prompt="def f(", suffix="return x", max_tokens=4)
    assert answer.choices[0].text and answer.usage is not None and answer.usage.completion_tokens == 4


def test_the_websocket_says_what_sse_says(client: OpenAI) -> None:
    def shape(event: Any) -> Any:
        value = event.model_dump(exclude_unset=True)
        return _plain(value)

    with client.responses.connect() as connection:
        connection.response.create(model="paced", input="think", store=False)
        over_ws = []
        for event in connection:
            over_ws.append(shape(event))
            if event.type == "response.completed":
                break
    over_sse = [
        shape(event) for event in client.responses.create(model="paced", input="think", store=False, stream=True)
    ]
    assert _joined(over_ws) == _joined(over_sse)


def _plain(value: Any) -> Any:
    """Without what differs from response to response."""
    changing = ("id", "item_id", "created_at", "completed_at", "sequence_number", "encrypted_content", "usage")
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if name not in changing}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _joined(events: list[Any]) -> list[Any]:
    """Neighbouring deltas as one: how many tokens come together is the clock's business."""
    found: list[Any] = []
    for event in events:
        if found and "delta" in event and found[-1].get("type") == event["type"]:
            found[-1] = {**found[-1], "delta": found[-1]["delta"] + event["delta"]}
        elif event["type"] != "keepalive":
            found.append(event)
    return found


def test_warmup_lanes_steer_and_chains_over_the_websocket(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model="paced", input=[], instructions="Be brief.", generate=False)
        warm = _until(connection, "response.completed")[-1]
        assert warm.response.output == []
        connection.response.create(model="paced", input="hi", previous_response_id=warm.response.id)
        assert _until(connection, "response.completed")[-1].response.output_text == TEXT
        connection.response.create(model="paced", input="a long one", stream_id="one")
        connection.response.create(model="paced", input="hi", stream_id="two")
        found = _until(connection, "response.completed")
        assert found[-1].stream_id == "two", "the short one ends first"
        begun = [event for event in found if event.type == "response.created"]
        running = next(event.response.id for event in begun if event.stream_id == "one")
        connection.response.steer(previous_response_id=running, input="now think")
        found = _until(connection, "response.completed")
        assert "response.steer.accepted" in [event.type for event in found]
        # The one message was finished first, so the response is complete; its successor follows by itself.
        assert found[-1].response.id == running
        successor = _until(connection, "response.completed")[-1].response
        assert (successor.previous_response_id, successor.output_text) == (running, "Thought.")


def _until(connection: Any, kind: str) -> list[Any]:
    found = []
    for event in connection:
        found.append(event)
        assert event.type != "error", event
        if event.type == kind:
            return found
    raise AssertionError(f"closed before {kind}")


def test_an_unknown_frame_comes_back_as_an_error(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.send({"type": "response.dance"})  # type: ignore[arg-type]
        event = next(iter(connection))
        assert event.type == "error" and event.error.code == "unknown_event"
        assert event.status == 400


def test_many_at_once_lose_and_double_nothing(server: Running) -> None:
    """32 streams, half over each transport; every sequence number once, in order."""

    async def over_http(client: AsyncOpenAI) -> None:
        numbers = []
        text = ""
        async for event in await client.responses.create(model="paced", input="hi", stream=True):
            numbers.append(event.sequence_number)
            text += event.delta if event.type == "response.output_text.delta" else ""
        assert numbers == list(range(len(numbers))) and text == TEXT

    async def over_ws(client: AsyncOpenAI) -> None:
        async with client.responses.connect() as connection:
            await connection.response.create(model="paced", input="hi")
            numbers = []
            text = ""
            async for event in connection:
                numbers.append(event.sequence_number)
                text += event.delta if event.type == "response.output_text.delta" else ""
                if event.type == "response.completed":
                    break
            assert numbers == list(range(len(numbers))) and text == TEXT

    async def main() -> None:
        async with AsyncOpenAI(base_url=server.base_url, api_key=KEY, max_retries=0) as client:
            await asyncio.gather(*(over_http(client) for _ in range(16)), *(over_ws(client) for _ in range(16)))

    before = threading.active_count()  # of the server and of tests before
    asyncio.run(main())
    assert threading.active_count() <= before + 8
