"""Bodies: read within a limit, and unpacked within the same limit.

A packed body may unpack to a thousand times its size, so unpacking stops where the limit is, not after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import zstandard
from starlette.types import Receive

from vivace.protocol.errors import BadRequest

_STEP = 1 << 20


class Gone(Exception):
    """The client went away before its request was whole."""


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int) -> bytes:
    """The body of an HTTP request, unpacked; ``headers`` have names in lower case.

    Raises :class:`BadRequest` with status 413 above ``limit`` bytes, 415 for an unknown ``content-encoding``, 400 for
    one that does not unpack; :class:`Gone` when the client left.
    """
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise too_large(limit)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            break
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    for encoding in reversed(headers.get("content-encoding", "").lower().split(",")):
        body = unpack(body, encoding.strip(), limit)
    return body


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """``body`` without its ``encoding``: gzip, deflate (with or without zlib's frame), zstd, or none."""
    try:
        match encoding:
            case "" | "identity":
                return body
            case "gzip" | "x-gzip":
                return _inflate(body, 16 + zlib.MAX_WBITS, limit)
            case "deflate":
                # Most clients send the zlib format, as the standard says; some the bare one.
                zlib_framed = len(body) > 1 and body[0] & 15 == 8 and (body[0] * 256 + body[1]) % 31 == 0
                return _inflate(body, zlib.MAX_WBITS if zlib_framed else -zlib.MAX_WBITS, limit)
            case "zstd":
                return _unzstd(body, limit)
    except (zlib.error, zstandard.ZstdError, EOFError):
        raise BadRequest(f"The body is not {encoding}, though content-encoding says so.", code="invalid_body") from None
    raise BadRequest(
        f"The content-encoding {encoding[:40]!r} is not known here; send gzip, deflate, zstd or none.",
        code="unsupported_encoding",
        status=415,
    )


def too_large(limit: int, what: str = "body") -> BadRequest:
    """The refusal of a body or message; it says the limit."""
    return BadRequest(f"The {what} is larger than the limit of {limit:,} bytes.", code="request_too_large", status=413)


def _inflate(body: bytes, window: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        machine = zlib.decompressobj(window)
        piece = machine.decompress(body, limit - size + 1)
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
        if not machine.eof:
            raise EOFError
        body = machine.unused_data
        if not body or window < 16:  # gzip may be several members
            return b"".join(pieces)


def _unzstd(body: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body, read_across_frames=True) as reader:
        while piece := reader.read(_STEP):
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            pieces.append(piece)
    # The reader says nothing of an end that is missing. Where the frame tells no size, JSON without its end does.
    if size < zstandard.frame_content_size(body):
        raise EOFError
    return b"".join(pieces)
