"""The client of model servers against raw sockets: framings, kept connections, silence, proxies, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.backends.faults import Fault
from vivace.backends.http import Http, place_of
from vivace.errors import UsageError

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nhello, world"
EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that does this with each connection."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"http{'s' if tls else ''}://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@contextlib.asynccontextmanager
async def client(**fields: Any) -> AsyncIterator[Http]:
    http = Http(**{"connect_timeout": 5.0, "silence": 5.0, **fields})
    try:
        yield http
    finally:
        await http.close()


async def asked(http: Http, url: str, body: bytes | None = None) -> bytes:
    with await http.ask("POST" if body is not None else "GET", url, {}, body, where="there") as answer:
        return await answer.body()


def replying(*pieces: bytes, keep: bool = True, heads: list[bytes] | None = None) -> Serve:
    """Answers each request with these pieces, one write after the other."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if heads is not None:
                heads.append(head)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if not keep:
                return

    return serve


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([CHUNKED, LENGTH, TO_THE_END, EARLY + CHUNKED]), st.lists(st.integers(1, 120), max_size=6))
def test_framings_cut_anywhere(reply: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(reply)]
    pieces = [reply[a:b] for a, b in itertools.pairwise(places)]

    async def main() -> None:
        keep = not reply.endswith(TO_THE_END)
        async with serving(replying(*pieces, keep=keep)) as url, client() as http:
            for _ in range(2):
                assert await asked(http, url) == b"hello, world"

    asyncio.run(main())


def test_what_is_sent_and_that_connections_are_kept() -> None:
    heads: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            assert await reader.readexactly(4) == b"body"
            writer.write(LENGTH)

    async def main() -> None:
        async with serving(serve) as url, client(headers={"x-own": "yes"}) as http:
            for _ in range(3):
                await asked(http, f"{url.replace('//', '//me:p%40ss@')}/v1/a b".replace(" ", "%20"), b"body")
            assert connections == 1
            at_once = await asyncio.gather(*(asked(http, f"{url}/x", b"body") for _ in range(4)))
            assert at_once == [b"hello, world"] * 4
            assert connections == 4

    asyncio.run(main())
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/a%20b HTTP/1.1"
    assert "x-own: yes" in lines
    assert "accept-encoding: identity" in lines
    assert "authorization: Basic bWU6cEBzcw==" in lines
    assert lines[1].startswith("host: localhost:")


def test_who_leaves_before_the_end_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED[:-5])
        with contextlib.suppress(ConnectionError):
            assert await reader.read(1) == b""
        closed.set()

    async def main() -> None:
        async with serving(serve) as url, client() as http:
            with await http.ask("GET", url, {}, where="there") as answer:
                assert await answer.read() == b"hello, world"
                assert not answer.whole
            await asyncio.wait_for(closed.wait(), 0.1)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"220 mail.example.org ESMTP\r\n\r\n", "is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 600_000, "is no HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort", "was lost"),
        (b"", "was lost"),
    ],
)
def test_answers_that_are_none(reply: bytes, said: str) -> None:
    heads: list[bytes] = []

    async def main() -> None:
        async with serving(replying(reply, keep=False, heads=heads)) as url, client() as http:
            with pytest.raises(Fault, match=said) as raised:
                await asked(http, url)
            assert raised.value.again
            assert raised.value.down

    asyncio.run(main())
    assert len(heads) == 1, "a new connection that breaks is not tried twice here"


def test_a_kept_connection_that_turns_out_closed() -> None:
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(LENGTH)
        await reader.readuntil(b"\r\n\r\n")  # and goes without a word
        seen.append(1)

    async def main() -> None:
        async with serving(serve) as url, client() as http:
            for _ in range(4):
                assert await asked(http, url) == b"hello, world"
            assert len(seen) >= 2

    asyncio.run(main())


def test_silence_and_nobody_there() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with serving(serve) as url, client(silence=0.05) as http:
            with pytest.raises(Fault, match="silent for too long"):
                await asked(http, url)
        with pytest.raises(Fault, match="cannot be reached"):
            await asked(http, url)

    asyncio.run(main())


def test_a_late_reader_makes_the_server_wait() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n")
        for _ in range(64):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1

    async def main() -> None:
        async with serving(serve) as url, client() as http:
            with await http.ask("GET", url, {}, where="there") as answer:
                await asyncio.sleep(0.3)
                assert sent < 48
                assert len(await answer.body(1 << 30)) == 64 << 20

    asyncio.run(main())


def test_places() -> None:
    found = place_of("https://[::1]/v1/é?a=b c".replace(" ", "%20"))
    assert (found.host, found.port, found.tls, found.authority) == ("::1", 443, True, "[::1]")
    assert found.path == "/v1/%C3%A9?a=b%20c"
    assert place_of("http://bücher.example:81").authority == "xn--bcher-kva.example:81"
    for wrong in (
        "ftp://host/v1",
        "localhost:8000/v1",
        "http://",
        "http://host:99999",
        "http://a b/",
        "http://a/\r\nx",
    ):
        with pytest.raises(UsageError, match="base_url"):
            place_of(wrong)


def test_headers_with_lines_in_them_are_refused() -> None:
    async def main() -> None:
        async with client() as http:
            with pytest.raises(Fault, match="authorization"):
                await http.ask("GET", "http://localhost:1", {"authorization": "Bearer x\r\nevil: 1"}, where="there")

    asyncio.run(main())


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Of a server named localhost; trusted by way of SSL_CERT_FILE."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    key, made = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(made)]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    return context


def test_tls(certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(replying(CHUNKED), certificate) as url:
            async with client() as http:
                assert [await asked(http, url) for _ in range(2)] == [b"hello, world"] * 2
            monkeypatch.delenv("SSL_CERT_FILE")
            async with client() as http:
                with pytest.raises(Fault, match="certificate"):
                    await asked(http, url)

    asyncio.run(main())


def proxy(heads: list[bytes], refuses: bool = False) -> Serve:
    """A proxy that passes a tunnel on, and answers what it is to fetch by itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if refuses:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            return
        if not heads[-1].startswith(b"CONNECT "):
            writer.write(LENGTH)
            return
        host, _, port = heads[-1].split(b" ")[1].decode().rpartition(":")
        there, away = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pass_on(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
            while data := await one.read(65536):
                other.write(data)
            other.close()

        await asyncio.gather(pass_on(reader, away), pass_on(there, writer))

    return serve


def test_the_proxy_of_the_environment(certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def main() -> None:
        async with serving(replying(CHUNKED), certificate) as url, serving(proxy(heads)) as by:
            for name in ("http_proxy", "https_proxy"):
                monkeypatch.setenv(name, by.replace("//", "//me:secret@"))
            async with client(trust_env=True) as http:
                assert [await asked(http, url) for _ in range(2)] == [b"hello, world"] * 2
                assert await asked(http, "http://models.example/v1/models") == b"hello, world"
            monkeypatch.setenv("no_proxy", "localhost")
            async with client(trust_env=True) as http:
                assert await asked(http, url) == b"hello, world"
            monkeypatch.delenv("no_proxy")
        async with serving(proxy([], refuses=True)) as by:
            monkeypatch.setenv("https_proxy", by)
            async with client(trust_env=True) as http:
                with pytest.raises(Fault, match=r"refused the way.*407"):
                    await asked(http, url)
        monkeypatch.setenv("https_proxy", "socks5://localhost:1")
        async with client(trust_env=True) as http:
            with pytest.raises(UsageError, match="proxy"):
                await asked(http, url)

    asyncio.run(main())
    assert [head.split(b" ")[0] for head in heads] == [b"CONNECT", b"GET"]
    assert b"proxy-authorization: Basic bWU6c2VjcmV0" in heads[0]
    assert heads[1].startswith(b"GET http://models.example/v1/models HTTP/1.1\r\nhost: models.example\r\n")
