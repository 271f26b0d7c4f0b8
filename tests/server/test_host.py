"""Where a server listens, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect, unix_connect

from tests.server.scripted import Answer, Batches, ScriptedGateway, endless
from tests.server.serving import serving
from tests.server.test_http import ASKING, gateway_of, wait_for
from tests.server.test_lanes import create, opened, until
from vivace.errors import UsageError, VivaceError
from vivace.server.app import build_door
from vivace.server.host import bind, bind_unix
from vivace.server.options import ServerOptions, is_loopback


async def slow(answer: Answer) -> Batches:
    yield answer.begin()
    await asyncio.sleep(0.5)
    yield [*answer.message(["done"]), *answer.completed()]


@pytest.mark.parametrize(
    ("host", "expected"),
    [(name, True) for name in ("127.0.0.1", "::1", "[::1]", "LocalHost", "a.localhost", "127.8.9.1")]
    + [(name, False) for name in ("0.0.0.0", "::", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com", "")],
)
def test_what_loopback_is(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_without_keys_nobody_listens_beyond_this_machine() -> None:
    with pytest.raises(UsageError) as refused:
        build_door(ScriptedGateway(), None, ServerOptions(host="0.0.0.0"))
    assert refused.value.code == "keys_required" and "vivace keys create" in refused.value.hint


def test_a_taken_port_and_a_strange_host_are_told() -> None:
    with bind(ServerOptions(port=0)) as taken, pytest.raises(VivaceError, match="--port"):
        bind(ServerOptions(port=taken.getsockname()[1]))
    with pytest.raises(VivaceError, match="Cannot listen on"):
        bind(ServerOptions(host="203.0.113.77", port=0))


def test_a_unix_socket_is_for_its_user_only(tmp_path: Path) -> None:
    path = tmp_path / "vivace.sock"
    path.touch()
    with pytest.raises(VivaceError, match="no socket"):
        bind_unix(path)
    path.unlink()
    with serving(ScriptedGateway, uds=path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(VivaceError, match="already"):
            bind_unix(path)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.post("http://vivace/v1/responses", json=ASKING).json()["status"] == "completed"
        with unix_connect(str(path), "ws://vivace/v1/responses") as socket_client:
            create(socket_client)
            until(socket_client, "response.completed")
    bind_unix(path).close()  # the file that a server left behind is replaced


def test_running_responses_end_before_the_server_and_sockets_get_1012() -> None:
    with serving(lambda: ScriptedGateway(slow), drain_seconds=5) as server:
        found: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: found.append(httpx.post(server.base_url + "/responses", json={**ASKING, "stream": True}))
        )
        asking.start()
        with opened(server) as busy, opened(server) as idle:
            create(busy)
            until(busy, "response.in_progress")
            wait_for(lambda: gateway_of(server).streams)
            server.host.stop()
            with pytest.raises(ConnectionClosed) as closed:
                idle.recv(timeout=0.4)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
            assert until(busy, "response.completed")[-1]["response"]["status"] == "completed"
            with pytest.raises(ConnectionClosed) as closed:
                busy.recv(timeout=2)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
        asking.join(5)
        assert '"type":"response.completed"' in found[0].text


def test_what_outlives_the_deadline_is_stopped_with_a_last_event() -> None:
    with serving(lambda: ScriptedGateway(endless), drain_seconds=0.3) as server:
        with httpx.stream("POST", server.base_url + "/responses", json={**ASKING, "stream": True}, timeout=10) as found:
            pieces = found.iter_text()
            text = next(pieces)
            server.host.stop()
            text += "".join(pieces)
        assert '"reason":"stopped"' in text.split("\n\n")[-2]
        assert gateway_of(server).stopped[0][0] == "cancelled"


def test_readiness_ends_with_the_drain() -> None:
    with (
        serving(lambda: ScriptedGateway(slow), drain_seconds=2) as server,
        httpx.Client() as client,
        opened(server) as busy,
    ):
        assert client.get(server.root + "/readyz").status_code == 200
        create(busy)
        until(busy, "response.in_progress")
        server.host.stop()
        wait_for(lambda: server.door.drain.draining)
        # A connection that is open already is still answered.
        assert client.get(server.root + "/readyz").json() == {"status": "draining"}
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.root + "/readyz")


def test_a_server_that_nobody_needs_ends() -> None:
    with serving(ScriptedGateway, idle_seconds=0.5) as server:
        with connect(server.ws_url):
            time.sleep(0.9)
            assert not server.host.should_exit, "somebody is connected"
            server.door.gateway.busy = True
        time.sleep(0.9)
        assert not server.host.should_exit, "a background response runs"
        server.door.gateway.busy = False
        wait_for(lambda: server.host.should_exit, 3)


PROGRAM = """
import asyncio, sys
from tests.server.scripted import ScriptedGateway
from tests.server.test_host import slow
from vivace.server.app import build_door
from vivace.server.host import Host, address, bind
from vivace.server.options import ServerOptions

async def main():
    options = ServerOptions(port=0, drain_seconds=5)
    listener = bind(options)
    print(address(listener), flush=True)
    await Host(build_door(ScriptedGateway(slow), None, options)).run_on(listener)

asyncio.run(main())
"""


def test_sigterm_drains_and_ends_with_0() -> None:
    root = Path(__file__).parents[2]
    arguments, environment = [sys.executable, "-c", PROGRAM], {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(arguments, cwd=root, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with connect(f"ws{address.removeprefix('http')}/v1/responses") as client:
            client.send(json.dumps({"type": "response.create", "model": "small", "input": "hi"}))
            until(client, "response.in_progress")
            process.send_signal(signal.SIGTERM)
            assert until(client, "response.completed")[-1]["response"]["status"] == "completed"
        assert process.wait(5) == 0
        host, port = address.removeprefix("http://").split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
