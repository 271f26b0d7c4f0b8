"""The endpoints of the protocols that are translated: Chat Completions, Completions, Messages."""

from __future__ import annotations

from collections.abc import Callable

from vivace.protocol.anthropic import decode_count_request, decode_messages_request
from vivace.protocol.chat import StreamOptions, decode_chat_request
from vivace.protocol.completions import decode_completion_request
from vivace.protocol.items import Response
from vivace.protocol.requests import ResponseRequest
from vivace.server import anthropic, chat, completions
from vivace.server.call import Call
from vivace.server.sse import Writer, last_event, stream_events


async def chat_completions(call: Call) -> None:
    """POST /v1/chat/completions"""
    given = decode_chat_request(await call.body())
    writer = chat.ChunkWriter(_wants_usage(given.stream_options))
    await _answer(call, "chat", chat.to_request(given), writer, chat.completion)


async def text_completions(call: Call) -> None:
    """POST /v1/completions"""
    given = decode_completion_request(await call.body())
    request = completions.to_request(given)
    before = completions.prompt_text(given) if given.echo else ""
    writer = completions.ChunkWriter(_wants_usage(given.stream_options), before)
    await _answer(call, "text_completion", request, writer, lambda response: completions.completion(response, before))


async def messages(call: Call) -> None:
    """POST /v1/messages"""
    given = decode_messages_request(await call.body())
    shown, silent = anthropic.shows_thinking(given)
    writer = anthropic.EventWriter(shown, silent, given.speed)
    headers = {"request-id": call.request_id}
    request = anthropic.to_request(given)

    def whole(response: Response) -> object:
        return anthropic.message(response, shown, given.speed)

    await _answer(call, "messages", request, writer, whole, headers)


async def count_tokens(call: Call) -> None:
    """POST /v1/messages/count_tokens"""
    request = anthropic.to_request(decode_count_request(await call.body()))
    await call.json({"input_tokens": await call.gateway.input_tokens(request, call.principal)})


async def _answer(
    call: Call,
    operation: str,
    request: ResponseRequest,
    write: Writer,
    whole: Callable[[Response], object],
    headers: dict[str, str] | None = None,
) -> None:
    """Answer ``request``: streamed through ``write``, or as what ``whole`` makes of the finished response."""
    call.belongs(request)
    stream = await call.gateway.respond(request, call.principal)
    watch = call.door.metrics.watch(operation, call.begun)
    if request.stream:
        await stream_events(call, stream, write, watch, headers)
    elif (last := await last_event(call, stream, watch)) is not None:
        await call.json(whole(last.response), headers={**stream.headers, **(headers or {})})


def _wants_usage(options: StreamOptions | None) -> bool:
    return options is not None and options.include_usage is True
