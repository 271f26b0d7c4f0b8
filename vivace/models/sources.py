"""Where the bytes of a model can come from. None of them is trusted: :mod:`vivace.models.pull` checks what they give.

A source puts a file into the work folder and returns its path, or raises :class:`SourceUnavailable` with the reason.
What it has when it is interrupted stays in the work folder and is taken up again.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import HubSource, ModelInfo
from vivace.models.files import CHUNK

SourceName = Literal["cache", "hub", "mirror"]

HUB_TIMEOUT = 4.0
"""Seconds to wait for each step of the hub's first answer."""

HUB_DEADLINE = 8.0
"""Seconds for the first answer altogether: name resolution has no timeout of its own."""

T = TypeVar("T")


@dataclass(frozen=True)
class PullEvent:
    """One step of a pull, for whoever shows it. ``done`` and ``total`` are bytes of the model file."""

    kind: Literal["wait", "source", "failed", "progress", "verify", "done"]
    text: str = ""
    source: str = ""
    done: int = 0
    total: int = 0


Report = Callable[[PullEvent], None]
Source = Callable[[ModelInfo, Path, Report], Path]


class SourceUnavailable(VivaceError):
    """This source does not have the file, or does not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, code="source_unavailable")


def copy_from_hub_cache(info: ModelInfo, work: Path, report: Report) -> Path:
    """The file out of the folder that huggingface_hub keeps for every program on this machine."""
    if info.source is None:
        raise SourceUnavailable("the catalogue names no hub file to look for")
    found = _in_hub_cache(info.source)
    target = work / "cached.gguf"
    done = 0
    with found.open("rb") as origin, target.open("wb") as copy:
        while chunk := origin.read(CHUNK):
            copy.write(chunk)
            done += len(chunk)
            report(PullEvent("progress", source="cache", done=done, total=info.bytes))
    return target


def _in_hub_cache(source: HubSource) -> Path:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
    if not isinstance(found, str):
        raise SourceUnavailable("not on this machine")
    return Path(found)


def download_from_hub(info: ModelInfo, work: Path, report: Report) -> Path:
    """The file from the model hub, resumed by huggingface_hub where it was interrupted."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    source = info.source
    if source is None:
        raise SourceUnavailable("the catalogue names no hub file")
    url = hf_hub_url(source.repo, source.file, revision=source.revision)
    # The library retries for half a minute; one plain request says sooner that nobody is there.
    metadata = _ask_hub(lambda: get_hf_file_metadata(url, timeout=HUB_TIMEOUT))
    total = info.bytes or metadata.size or 0
    if info.bytes and metadata.size not in (None, info.bytes):
        raise SourceUnavailable(f"the hub's file has {metadata.size} bytes instead of {info.bytes}")
    try:
        return Path(
            hf_hub_download(
                source.repo,
                source.file,
                revision=source.revision,
                local_dir=work / "hub",
                etag_timeout=HUB_TIMEOUT,
                tqdm_class=_progress_bar(lambda done: report(PullEvent("progress", "", "hub", done, total))),
            )
        )
    except Exception as error:  # The library passes on what its transports raise, several libraries deep.
        raise SourceUnavailable(_reason(error)) from error


def identify(info: ModelInfo, source: str) -> ModelInfo:
    """The entry with the size and checksum that ``source`` itself records; unchanged where the catalogue knows them.

    The hub names files that it keeps by LFS after their SHA-256, in its answers and in its cache folder. Such a
    checksum finds a damaged transfer, not a file that was replaced on the hub before it was first pulled here. Raises
    :class:`SourceUnavailable` where the source has no such record.
    """
    if info.sha256 or info.source is None:
        return info
    if source == "cache":
        found = _in_hub_cache(info.source)
        size, etag, revision = found.stat().st_size, found.resolve().name, info.source.revision
    elif source == "hub":
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(info.source.repo, info.source.file, revision=info.source.revision)
        metadata = _ask_hub(lambda: get_hf_file_metadata(url, timeout=HUB_TIMEOUT))
        size, etag = metadata.size or 0, metadata.etag or ""
        # Of the same commit, should the branch move while the file is fetched.
        revision = metadata.commit_hash or info.source.revision
    else:
        raise SourceUnavailable("the catalogue names no checksum, so only the hub's record can tell the file")
    if size <= 0 or not re.fullmatch(r"[0-9a-f]{64}", etag):
        raise SourceUnavailable("no SHA-256 of the file is recorded there, so it could not be checked")
    return replace(info, bytes=size, sha256=etag, source=replace(info.source, revision=revision))


def resolve_on_hub(repo: str, file: str) -> HubSource:
    """The file that ``repo`` means, at the commit that its main branch has now.

    Raises :class:`UsageError` where no file is named and the repository has several GGUF files, or none.
    """
    from huggingface_hub import HfApi

    try:
        found = _ask_hub(lambda: HfApi().model_info(repo, timeout=HUB_TIMEOUT))
    except SourceUnavailable as error:
        raise VivaceError(
            f"Cannot look up {repo} on the hub: {error.message}",
            hint="Check the name and the network, or give the path of a .gguf file.",
            code="model_unavailable",
        ) from error
    names = [entry.rfilename for entry in found.siblings or [] if entry.rfilename.endswith(".gguf")]
    if file and file not in names:
        raise UsageError(f"{repo} has no file {file}", hint=_choices(repo, names), code="model_not_found")
    if not file and len(names) != 1:
        raise UsageError(f"{repo} has {len(names)} GGUF files", hint=_choices(repo, names), code="model_not_found")
    return HubSource(repo, found.sha or "main", file or names[0])


def _choices(repo: str, names: list[str]) -> str:
    return "Name one: " + ", ".join(f"{repo}:{name}" for name in names[:20]) if names else "Name another repository."


def _ask_hub(question: Callable[[], T]) -> T:
    """The answer to one small request; gives up after :data:`HUB_DEADLINE` whatever the network does."""
    answers: list[T] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(question())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="hub-request")
    thread.start()
    thread.join(HUB_DEADLINE)
    if answers:
        return answers[0]
    raise SourceUnavailable(_reason(errors[0]) if errors else f"no answer within {HUB_DEADLINE:.0f} seconds")


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    told = (text[0] if text else type(error).__name__)[:300]
    return f"cannot be reached: {told}" if type(error).__name__.startswith("Connect") else told


def _progress_bar(report: Callable[[int], None]) -> type[Any]:
    """A silent stand-in for the library's progress bar that reports the bytes so far."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]
            self._done = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            report(self._done)

    return Bar


def free_bytes(folder: Path) -> int:
    """Free space of the file system that ``folder`` is, or will be, on."""
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
