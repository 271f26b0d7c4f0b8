"""A server as a worker: a llama-server binary that is started here, or an address that already answers.

``server_worker.py llama BINARY MODEL.gguf [--spec ngram-mod] [--ctx N]`` or ``server_worker.py openai ADDRESS``. A key
for the address is taken from the environment (``PEER_API_KEY``).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

from completions import llama_completion, openai_completion
from line import serve


def open_worker() -> tuple[dict[str, Any], dict[str, Any]]:
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(dest="kind", required=True)
    llama = kinds.add_parser("llama")
    llama.add_argument("binary")
    llama.add_argument("model")
    llama.add_argument("--spec", default="none")
    llama.add_argument("--ctx", type=int, default=8448)
    llama.add_argument("--threads", type=int, default=0)
    openai = kinds.add_parser("openai")
    openai.add_argument("address")
    arguments = parser.parse_args()
    return _llama(arguments) if arguments.kind == "llama" else _openai(arguments.address.rstrip("/"))


def _llama(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = str(arguments.threads or len(os.sched_getaffinity(0)))
    command = [arguments.binary, "-m", arguments.model, "-c", str(arguments.ctx), "-t", threads, "-tb", threads]
    command += ["-np", "1", "--host", "127.0.0.1", "--port", str(port)]
    if arguments.spec != "none":
        command += ["--spec-type", arguments.spec]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_die_with_parent)
    address = f"http://127.0.0.1:{port}"
    _wait(f"{address}/health", server)
    version = subprocess.run([arguments.binary, "--version"], capture_output=True, text=True, timeout=60)
    words = (version.stderr or version.stdout).strip().splitlines()
    ready = {
        "detail": f"speculation {arguments.spec}, {threads} threads",
        "prefix_cache": False,
        "versions": {"llama-server": words[0].removeprefix("version: ") if words else "unknown"},
    }
    return ready, {"generate": lambda message: llama_completion(address, message)}


def _openai(address: str) -> tuple[dict[str, Any], dict[str, Any]]:
    key = os.environ.get("PEER_API_KEY", "")
    request = urllib.request.Request(f"{address}/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        model = json.load(answer)["data"][0]["id"]
    try:
        with urllib.request.urlopen(f"{address}/version", timeout=30) as answer:
            version = str(json.load(answer).get("version", "unknown"))
    except OSError:
        version = "unknown"
    ready = {"detail": "a server that was running already", "versions": {"server": version}}
    return ready, {"generate": lambda message: openai_completion(address, model, message, key)}


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if server.poll() is not None:
            raise OSError(f"llama-server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.25)
    raise OSError("llama-server did not become ready")


def _die_with_parent() -> None:
    """Linux: the server ends when its worker does, however that ends."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


if __name__ == "__main__":
    serve(open_worker)
