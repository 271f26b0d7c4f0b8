"""Opaque content comes back as it went out, or not at all."""

from __future__ import annotations

import base64
import hashlib
import hmac
import stat
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.errors import BadRequest
from vivace.service.sealing import Kind, Sealer

KEY = b"k" * 32
SEALER = Sealer(KEY)
TEXT = st.text(st.characters(codec="utf-8"))


@given(TEXT, st.sampled_from(["reasoning", "compaction"]))
def test_what_was_sealed_is_opened_by_the_same_key_and_kind(text: str, kind: Kind) -> None:
    sealed = SEALER.seal(kind, text)
    assert sealed.isascii()
    assert Sealer(KEY).open(kind, sealed) == text
    assert Sealer(b"o" * 32).open(kind, sealed) is None
    assert SEALER.open("reasoning" if kind == "compaction" else "compaction", sealed) is None


@given(TEXT, st.integers(0), st.characters(codec="utf-8"))
def test_what_was_changed_is_not_opened(text: str, place: int, letter: str) -> None:
    sealed = SEALER.seal("reasoning", text)
    at = place % len(sealed)
    changed = sealed[:at] + letter + sealed[at + 1 :]
    assert SEALER.open("reasoning", changed) == (text if changed == sealed else None)


@given(TEXT)
def test_anything_else_is_not_opened(text: str) -> None:
    assert SEALER.open("reasoning", text) is None
    with pytest.raises(BadRequest) as caught:
        SEALER.open_compaction(text, "input[3]")
    assert (caught.value.code, caught.value.param) == ("invalid_compaction", "input[3]")


def test_a_small_blob_does_not_unpack_to_any_size() -> None:
    packer = zlib.compressobj(9)
    data = packer.compress(b'{"kind":"reasoning","text":"') + packer.compress(b"a" * (64 << 20))
    body = base64.urlsafe_b64encode(data + packer.compress(b'"}') + packer.flush()).decode()
    sign = base64.urlsafe_b64encode(hmac.digest(KEY, body.encode(), hashlib.sha256)).decode()
    assert len(body) < 200_000
    assert SEALER.open("reasoning", f"v1.{body}.{sign}") is None


def test_a_key_is_made_once_and_is_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "key"
    found: list[Sealer] = []
    threads = [threading.Thread(target=lambda: found.append(Sealer.of_file(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    sealed = found[0].seal("compaction", "x")
    assert all(sealer.open("compaction", sealed) == "x" for sealer in [*found, Sealer.of_file(path)])
