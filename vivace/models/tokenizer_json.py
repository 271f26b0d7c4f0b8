"""The vocabulary in a hub repository's ``tokenizer.json``, in the same form as that of a GGUF file.

How text is cut into words is recognised by the stages written in the file, character by character: an unknown cut is
refused, as an unknown name is in GGUF. An NFC normaliser (Qwen's) is passed over, because bytes have to round-trip.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vivace.errors import VivaceError
from vivace.models.gguf_cursor import quoted
from vivace.models.json_file import invalid, read_if_there, read_json
from vivace.models.pretokenizers import WHOLE_WORDS
from vivace.models.vocabulary import END_TEXTS, Vocabulary

FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json", "chat_template.jinja")
"""What :func:`read_folder_vocabulary` reads."""

MAX_TOKENS = 1 << 22

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_FAMILIES = {
    (("split", _WORDS % r"\p{N}"), ("bytes", "")): "qwen2",
    (("split", _WORDS % r"\p{N}{1,3}"), ("bytes", "")): "llama-bpe",
    (("digits", ""), ("bytes", _GPT2)): "smollm",
    (("bytes", _GPT2),): "gpt-2",
}
"""The stages of ``pre_tokenizer`` -> the name in :mod:`vivace.models.pretokenizers`."""


def read_folder_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a model folder.

    Raises :class:`VivaceError`: ``tokenizer_unsupported`` for another kind of tokenizer, ``model_file_invalid`` where
    the entries contradict each other.
    """
    path = folder / "tokenizer.json"
    tokenizer = read_json(path)
    settings = read_if_there(folder / "tokenizer_config.json")
    config = read_if_there(folder / "config.json")
    generation = read_if_there(folder / "generation_config.json")
    model = _object(tokenizer, "model")
    pre = _family(tokenizer, model, path)
    added = _added(tokenizer, path)
    tokens, unused = _tokens(model, added, config.get("vocab_size", 0), path)
    ids = {token: id for id, token in enumerate(tokens)}
    control = sorted(id for id, (text, special) in added.items() if special or _looks_special(text))
    special = {tokens[id]: id for id in control}
    ends = {special[text] for text in END_TEXTS if text in special}
    for source in (generation, config):
        ends |= _eos_ids(source.get("eos_token_id"), len(tokens), path)
    named = [ids.get(_text(settings.get(f"{which}_token"))) for which in ("bos", "eos")]
    bos = named[0] if named[0] is not None else config.get("bos_token_id")
    if named[1] is not None:
        ends.add(named[1])
    if type(bos) is not int or not 0 <= bos < len(tokens):
        bos = None
    add_bos = settings.get("add_bos_token")
    return Vocabulary(
        pre=pre,
        tokens=tokens,
        merges=_merges(model, path),
        control=control,
        user_defined=sorted(id for id in added if id not in set(control)),
        unused=unused,
        ends=sorted(ends),
        bos=bos,
        add_bos=add_bos if isinstance(add_bos, bool) else _begins_with_special(tokenizer.get("post_processor")),
        chat_template=_template(folder, settings),
    )


def _family(tokenizer: dict[str, Any], model: dict[str, Any], path: Path) -> str:
    if model.get("type", "BPE") != "BPE":
        raise _unsupported(path, f"a tokenizer of the kind {quoted(str(model.get('type')))}")
    for key in ("byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise _unsupported(path, f"a tokenizer with {key}")
    for normalizer in _sequence(tokenizer.get("normalizer"), "normalizers"):
        if normalizer.get("type") != "NFC":
            raise _unsupported(path, f"the normaliser {quoted(str(normalizer.get('type')))}")
    stages = tuple(_stage(part, path) for part in _sequence(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    pre = _FAMILIES.get(stages)
    if pre is None:
        raise _unsupported(path, f"a pre-tokenizer with stages that are not known: {quoted(str(stages))}")
    if bool(model.get("ignore_merges")) != (pre in WHOLE_WORDS):
        raise _unsupported(path, f"ignore_merges with the words of {pre}")
    return pre


def _stage(part: dict[str, Any], path: Path) -> tuple[str, str]:
    kind = part.get("type")
    if kind == "Split" and part.get("behavior") == "Isolated" and not part.get("invert"):
        return "split", str(_object(part, "pattern").get("Regex", ""))
    if kind == "Digits" and part.get("individual_digits") is True:
        return "digits", ""
    if kind == "ByteLevel" and not part.get("add_prefix_space", True):
        return "bytes", _GPT2 if part.get("use_regex", True) else ""
    raise _unsupported(path, f"the pre-tokenizer {quoted(str(part))}")


def _tokens(
    model: dict[str, Any], added: dict[int, tuple[str, bool]], rows: Any, path: Path
) -> tuple[list[str], list[int]]:
    """Tokens by id, and the ids that no text has: up to the embedding's ``rows``, named as converters to GGUF do."""
    vocab = _object(model, "vocab")
    if not vocab or not all(type(id) is int and 0 <= id < MAX_TOKENS for id in vocab.values()):
        raise invalid(path, "its vocabulary is missing, empty or has unusable ids")
    by_id = {id: token for token, id in vocab.items()}
    if len(by_id) != len(vocab):
        raise invalid(path, "two tokens have the same id")
    for id, (text, _) in added.items():
        if by_id.setdefault(id, text) != text:
            raise invalid(path, f"two tokens have the id {id}")
    count = max(by_id) + 1
    if type(rows) is int and count <= rows <= MAX_TOKENS:
        count = rows
    unused = [id for id in range(count) if id not in by_id]
    tokens = [by_id.get(id, f"[PAD{id}]") for id in range(count)]
    if len(set(tokens)) != count:
        raise invalid(path, "a token appears twice")
    return tokens, unused


def _added(tokenizer: dict[str, Any], path: Path) -> dict[int, tuple[str, bool]]:
    found: dict[int, tuple[str, bool]] = {}
    for entry in tokenizer.get("added_tokens") or []:
        id, text = (entry.get("id"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if type(id) is not int or not 0 <= id < MAX_TOKENS or not isinstance(text, str) or not text or id in found:
            raise invalid(path, "an added token has no usable id or text")
        found[id] = (text, entry.get("special") is True)
    return found


def _merges(model: dict[str, Any], path: Path) -> list[str]:
    merges: list[str] = []
    for merge in model.get("merges") or []:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) and part for part in pair):
            raise invalid(path, f"the merge {quoted(str(merge))} is not two parts")
        merges += pair
    if not merges:
        raise invalid(path, "it has no merges")
    return merges


def _looks_special(text: str) -> bool:
    """Whether converters to GGUF take it for a control token whatever the file says."""
    return bool(re.fullmatch(r"<\|.*\|>|<｜.*｜>", text, re.DOTALL))


def _eos_ids(value: Any, count: int, path: Path) -> set[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(id) is int and 0 <= id < count for id in ids):
        raise invalid(path, f"eos_token_id is {quoted(str(value))}, not one of {count} tokens")
    return set(ids)


def _begins_with_special(post: Any) -> bool:
    """Whether the post-processor puts a special token before every text."""
    for part in _sequence(post, "processors"):
        single = part.get("single")
        if part.get("type") == "TemplateProcessing" and isinstance(single, list) and single:
            return isinstance(single[0], dict) and "SpecialToken" in single[0]
    return False


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file() and beside.stat().st_size <= 1 << 20:
        return beside.read_text("utf-8", errors="replace")
    template = settings.get("chat_template")
    if isinstance(template, list):  # Several by name.
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _text(token: Any) -> str:
    """A token in tokenizer_config.json: its text, or an object around it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _sequence(part: Any, key: str) -> list[dict[str, Any]]:
    """The steps of a pipeline's part: one, several in a ``Sequence``, or none."""
    if not isinstance(part, dict):
        return []
    inner = part.get(key) if part.get("type") == "Sequence" else [part]
    return [step for step in inner if isinstance(step, dict)] if isinstance(inner, list) else []


def _object(where: dict[str, Any], key: str) -> dict[str, Any]:
    value = where.get(key)
    return value if isinstance(value, dict) else {}


def _unsupported(path: Path, what: str) -> VivaceError:
    return VivaceError(
        f"{path} needs {what}, so its text cannot be cut into tokens the way it was trained",
        hint="Use a model whose tokenizer is of a known family (Qwen2 and 3, Llama 3, SmolLM, GPT-2).",
        code="tokenizer_unsupported",
    )
