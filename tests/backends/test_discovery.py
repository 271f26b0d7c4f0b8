"""Servers on this machine are found by what they say, quickly, and nothing else is taken for one."""

from __future__ import annotations

import asyncio
import time
import tomllib

from tests.fakes.upstream import FakeUpstream, Reply
from vivace.backends.configured import backend_from_config
from vivace.backends.discovery import find_servers


def test_what_answers_is_found_and_named() -> None:
    async def main() -> None:
        llama = FakeUpstream([Reply()], [{"id": "coder", "owned_by": "llamacpp"}])
        llama.routes["/props"] = Reply(body={"default_generation_settings": {"n_ctx": 4096}})
        ollama = FakeUpstream(
            [Reply()], [{"id": "a:latest", "owned_by": "library"}, {"id": "b", "owned_by": "library"}]
        )
        empty = FakeUpstream([Reply()])
        empty.routes["/v1/models"] = Reply(body={"object": "list", "data": []})
        own = FakeUpstream([Reply()], [{"id": "coder-0.5b", "owned_by": "vivace"}])
        page = FakeUpstream([Reply()])
        page.routes["/v1/models"] = Reply(body=b"<html>hello</html>")
        nothing = FakeUpstream([Reply()], [])

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(-1)
            writer.close()

        mute = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with llama, ollama, empty, own, page, nothing, mute:
            ports = {fake.port: "lm-studio" for fake in (llama, ollama, empty, own, page, nothing)}
            ports[mute.sockets[0].getsockname()[1]] = "vllm"
            began = time.perf_counter()
            found = await find_servers(ports)
            assert time.perf_counter() - began < 2
        assert [server.kind for server in found] == ["llama-server", "ollama", "lm-studio"]
        assert [server.window for server in found] == [4096, None, None]
        assert found[1].models == ["a:latest", "b"]
        table = tomllib.loads(found[0].config())["backends"]["llama-server"]
        assert table == {"kind": "upstream", "base_url": llama.base_url}
        backend_from_config(table, "llama-server")
        lines = found[1].config()
        assert 'model = "a:latest"' in lines
        assert "window = 0  #" in lines

    asyncio.run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with FakeUpstream([Reply()]) as fake:
            port = fake.port
        assert await find_servers({port: "vllm"}) == []

    asyncio.run(main())
