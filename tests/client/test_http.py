"""The small HTTP client: bodies of every kind, connections that end, and answers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.client.address import Address
from vivace.client.http import Answer, Http, refusal
from vivace.errors import UsageError, VivaceError

T = TypeVar("T")


def against(folder: Path, answers: list[bytes], use: Callable[[Http], Awaitable[T]]) -> tuple[T, list[bytes], int]:
    """Run ``use`` against a server that gives these answers in order; an empty one closes the connection unanswered.

    Gives what came of it, the requests, and how many connections there were.
    """
    left, asked, connections = list(answers), [], 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"content-length:"), 0)
                asked.append(head + await reader.readexactly(length))
                answer = left.pop(0)
                writer.write(answer)
                await writer.drain()
                if not answer or b"connection: close" in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    async def main() -> T:
        path = str(folder / "h.sock")
        async with await asyncio.start_unix_server(handle, path):
            http = Http(Address.parse(f"unix:{path}"), {"x-a": "b"})
            try:
                return await use(http)
            finally:
                await http.close()

    return asyncio.run(main()), asked, connections


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def test_calls_share_a_connection(tmp_path: Path) -> None:
    async def use(http: Http) -> list[Answer]:
        return [await http.call("GET", "/a"), await http.call("POST", "/b", b"{}")]

    got, asked, connections = against(tmp_path, [ok(b"one"), b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"two")], use)
    assert got == [Answer(200, b"one"), Answer(200, b"two")] and connections == 1
    assert asked[0].startswith(b"GET /a HTTP/1.1\r\nhost: localhost\r\nx-a: b\r\n")
    assert b"content-length: 2\r\n" in asked[1] and asked[1].endswith(b"\r\n\r\n{}")


def test_a_kept_connection_that_was_closed_is_made_anew(tmp_path: Path) -> None:
    async def use(http: Http) -> Answer:
        await http.call("GET", "/")
        return await http.call("GET", "/")

    got, _, connections = against(tmp_path, [ok(b"one"), b"", ok(b"two")], use)
    assert got.body == b"two" and connections == 2


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: u\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_bodies(tmp_path: Path, answer: bytes, body: bytes) -> None:
    assert against(tmp_path, [answer], lambda http: http.call("GET", "/"))[0].body == body


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP"),
        (b"", "the connection was closed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nhalf", "the connection was closed"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot hex\r\n", "invalid literal"),
        (b"x" * 70_000, "no end of a line"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, answer: bytes, reason: str) -> None:
    with pytest.raises(VivaceError, match=reason) as caught:
        against(tmp_path, [answer], lambda http: http.call("GET", "/"))
    assert caught.value.code == "service_gone"


@given(st.lists(st.text("ab\n", max_size=6), max_size=5))
def test_lines_are_whole_however_they_come(parts: list[str]) -> None:
    import tempfile

    chunks = [part.encode() for part in parts if part]
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"

    async def use(http: Http) -> list[bytes]:
        return [line async for line in http.lines("GET", "/")]

    with tempfile.TemporaryDirectory() as folder:
        got, _, _ = against(Path(folder), [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body], use)
    assert got == b"".join(chunks).split(b"\n")[:-1]


def test_a_refused_stream_says_why(tmp_path: Path) -> None:
    body = b'{"error": {"message": "no\\nway", "code": "nope", "param": "model"}}'
    answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def use(http: Http) -> list[bytes]:
        return [line async for line in http.lines("POST", "/")]

    with pytest.raises(VivaceError, match="no\nway") as caught:
        against(tmp_path, [answer], use)
    assert (caught.value.code, caught.value.param, caught.value.exit_code) == ("nope", "model", 2)


def test_a_refusal_without_words() -> None:
    error = refusal(Answer(502, b"<html>"))
    assert "HTTP status 502" in error.message and (error.code, error.exit_code) == ("service_error", 1)


@pytest.mark.parametrize(
    ("text", "websocket"),
    [
        ("http://127.0.0.1:8000", "ws://127.0.0.1:8000/v1/responses"),
        ("ws://host", "ws://host/v1/responses"),
        ("https://host/v1", "wss://host/v1/responses"),
        ("wss://host:443/team/v1/", "wss://host/team/v1/responses"),
        ("http://[::1]:80", "ws://[::1]/v1/responses"),
        ("unix:/a b/s.sock", "ws://localhost/v1/responses"),
    ],
)
def test_addresses(text: str, websocket: str) -> None:
    assert Address.parse(text).websocket == websocket


@pytest.mark.parametrize(
    "text", ["", "host:80", "ftp://host", "http://", "unix:", "http://a:b", "http://h?q", "http://[::"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        Address.parse(text)
