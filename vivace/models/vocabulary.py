"""What a model file says about its tokens, checked, and a cache of it.

Reading a vocabulary of 151,936 tokens and 151,387 merges out of GGUF takes longer than out of one msgpack file, and the
command starts once per edit.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from vivace.atomic import write_atomic
from vivace.errors import VivaceError
from vivace.models.files import state_of
from vivace.models.gguf_cursor import quoted
from vivace.models.gguf_file import open_gguf
from vivace.models.gguf_header import Metadata
from vivace.models.pretokenizers import BEGINS_WITH_BOS, check_known
from vivace.settings import Settings

# ggml's token types (gguf.TokenType).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Texts of control tokens that end a turn or the text, whichever of them the file names as its EOS.
END_TEXTS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>")
_END_KEYS = ("eos", "eot", "eom")

_CACHE_FORMAT = 1


class Vocabulary(msgspec.Struct, frozen=True):
    """Tokens by id, and everything that turns text into them.

    ``merges`` is flat: left and right of the first merge, left and right of the second, and so on. ``control`` holds
    special tokens, ``user_defined`` added ones that are ordinary text (``<tool_call>``), ``unused`` padding.
    """

    pre: str
    tokens: list[str]
    merges: list[str]
    control: list[int]
    user_defined: list[int]
    unused: list[int]
    ends: list[int]
    bos: int | None
    add_bos: bool
    chat_template: str | None


def load_vocabulary(path: Path, settings: Settings) -> Vocabulary:
    """The vocabulary of a GGUF file or a model folder.

    It comes from the cache where the file is unchanged; a damaged cache is rebuilt.
    """
    cached = _cache_path(path, settings)
    found = _read_cache(cached)
    if found is None:
        found = _read(path)
        _write_cache(cached, found)
    return found


def _read(path: Path) -> Vocabulary:
    if path.is_dir():
        from vivace.models.tokenizer_json import read_folder_vocabulary

        return read_folder_vocabulary(path)
    with open_gguf(path) as file:
        return read_vocabulary(file.metadata)


def read_vocabulary(metadata: Metadata | dict[str, Any]) -> Vocabulary:
    """The vocabulary in GGUF metadata.

    Raises :class:`VivaceError`: ``tokenizer_unsupported`` for another kind of tokenizer or pre-tokenizer,
    ``model_file_invalid`` where the entries contradict each other.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise VivaceError(
            f"The model file has a tokenizer of the kind {quoted(str(model))}; only byte-level BPE (gpt2) is supported",
            code="tokenizer_unsupported",
        )
    pre = check_known(metadata.get("tokenizer.ggml.pre"))
    tokens = _array(metadata, "tokens", str)
    if len(set(tokens)) != len(tokens):
        raise _invalid("a token appears twice")
    types = _array(metadata, "token_type", int) if "tokenizer.ggml.token_type" in metadata else [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise _invalid(f"there are {len(tokens)} tokens and {len(types)} token types")
    merges: list[str] = []
    for merge in _array(metadata, "merges", str):
        pair = merge.split(" ")
        if len(pair) != 2 or not all(pair):
            raise _invalid(f"the merge {quoted(merge)} is not two parts")
        merges += pair
    control = [id for id, kind in enumerate(types) if kind in (CONTROL, UNKNOWN)]
    special = {tokens[id]: id for id in control}
    ends = {id for key in _END_KEYS if (id := _token_id(metadata, key, len(tokens))) is not None}
    ends.update(special[text] for text in END_TEXTS if text in special)
    add_bos = metadata.get("tokenizer.ggml.add_bos_token", pre in BEGINS_WITH_BOS)
    template = metadata.get("tokenizer.chat_template")
    return Vocabulary(
        pre=pre,
        tokens=tokens,
        merges=merges,
        control=control,
        user_defined=[id for id, kind in enumerate(types) if kind == USER_DEFINED],
        unused=[id for id, kind in enumerate(types) if kind == UNUSED],
        ends=sorted(ends),
        bos=_token_id(metadata, "bos", len(tokens)),
        add_bos=bool(add_bos),
        chat_template=template if isinstance(template, str) else None,
    )


def _array(metadata: Metadata | dict[str, Any], key: str, kind: type) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(values, list) or not values or not all(isinstance(value, kind) for value in values):
        raise _invalid(f"tokenizer.ggml.{key} is missing, empty or of the wrong type")
    return values


def _token_id(metadata: Metadata | dict[str, Any], key: str, count: int) -> int | None:
    id = metadata.get(f"tokenizer.ggml.{key}_token_id")
    if id is None:
        return None
    if not isinstance(id, int) or not 0 <= id < count:
        raise _invalid(f"tokenizer.ggml.{key}_token_id is {quoted(str(id))}, not one of {count} tokens")
    return id


def _invalid(what: str) -> VivaceError:
    return VivaceError(
        f"The tokenizer in the model file is damaged: {what}", hint="Get the file again.", code="model_file_invalid"
    )


def _cache_path(path: Path, settings: Settings) -> Path:
    # Identity without reading half a gigabyte: a changed file has another size or time.
    try:
        size, changed = state_of(path)
    except OSError as error:
        raise VivaceError(f"Cannot read {path}: {error.strerror}", code="model_file_unreadable") from error
    identity = f"{_CACHE_FORMAT}\n{path.resolve()}\n{size}\n{changed}"
    return settings.cache_dir / "tokenizers" / hashlib.sha256(identity.encode()).hexdigest()[:32] / "vocabulary.msgpack"


def _read_cache(cached: Path) -> Vocabulary | None:
    try:
        data = cached.read_bytes()
        if hashlib.blake2b(data[16:], digest_size=16).digest() != data[:16]:
            return None
        return msgspec.msgpack.decode(data[16:], type=Vocabulary)
    except (OSError, msgspec.MsgspecError):
        return None


def _write_cache(cached: Path, vocabulary: Vocabulary) -> None:
    data = msgspec.msgpack.encode(vocabulary)
    try:
        write_atomic(cached, hashlib.blake2b(data, digest_size=16).digest() + data)
    except OSError:
        return  # A full or read-only cache costs time at the next start, nothing else.
