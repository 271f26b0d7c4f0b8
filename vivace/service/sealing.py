"""Opaque content that clients keep for us: reasoning and compactions.

``v1.`` + base64url of a JSON text, compressed + ``.`` + base64url of its HMAC-SHA256. It comes back from other
connections and after restarts, so it holds all that it needs; the HMAC shows that it is ours and whole. It is not a
secret from its own user, who could read the same in the stream.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import zlib
from pathlib import Path
from typing import Literal

import msgspec

from vivace.protocol.errors import BadRequest

Kind = Literal["reasoning", "compaction"]

_LARGEST = 16 << 20
"""Bytes that an opened text may have: a small blob must not unpack to any size."""


class _Sealed(msgspec.Struct):
    kind: Kind
    text: str


class Sealer:
    """Seals and opens with one key. Servers that share clients share the key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of_file(cls, path: Path) -> Sealer:
        """With the key in ``path``, made on first use and readable by the user alone."""
        try:
            return cls(path.read_bytes())
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            try:
                os.link(draft, path)  # whoever is first decides
            except FileExistsError:
                pass
            finally:
                draft.unlink()
            return cls(path.read_bytes())

    def seal(self, kind: Kind, text: str) -> str:
        body = base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(_Sealed(kind, text)), 6)).decode()
        return f"v1.{body}.{self._sign(body)}"

    def open(self, kind: Kind, sealed: str) -> str | None:
        """The text, or None for what is not ours, of another kind, or changed."""
        version, _, rest = sealed.partition(".")
        body, _, sign = rest.partition(".")
        if version != "v1" or not hmac.compare_digest(sign.encode(), self._sign(body).encode()):
            return None
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(base64.urlsafe_b64decode(body), _LARGEST)
            found = msgspec.json.decode(data, type=_Sealed)
        except (binascii.Error, zlib.error, msgspec.DecodeError):
            return None
        return found.text if found.kind == kind else None

    def open_compaction(self, sealed: str, param: str) -> str:
        """The summary of a compaction item. Raises :class:`BadRequest` for one that this server cannot read."""
        text = self.open("compaction", sealed)
        if text is None:
            raise BadRequest("The compaction is not from this server, or was changed.", param, "invalid_compaction")
        return text

    def _sign(self, body: str) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._key, body.encode(), hashlib.sha256)).decode()
