"""The files that are there: find, verify, register, remove.

A file is hashed once, when it is put in place. ``NAME.gguf.verified`` beside it keeps size, modification time and
SHA-256; while size and time agree the file is taken as verified, otherwise it is hashed again. For a model whose
checksum the catalogue does not know, that record is what the file has to be from then on. A folder of safetensors is
treated alike, with all its files.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.atomic import write_atomic
from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import NAME, ModelInfo, added_path, load_added, load_catalogue, shipped, to_toml
from vivace.models.files import sha256_of, sha256_of_model, state_of
from vivace.models.locks import locked
from vivace.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from vivace.models.sources import PullEvent
    from vivace.models.weight_source import WeightSource


def place(info: ModelInfo, settings: Settings) -> Path:
    """Where the file of a model belongs, whether it is there or not."""
    return Path(info.path) if info.path else settings.models_dir / f"{info.name}.gguf"


def work_dir(info: ModelInfo, settings: Settings) -> Path:
    """Where the unfinished pull of a model is kept."""
    return settings.cache_dir / "pull" / info.name


def recorded(info: ModelInfo, settings: Settings) -> ModelInfo:
    """The entry with the size and checksum kept when it was first pulled, where the catalogue does not know them."""
    if info.sha256:
        return info
    try:
        size, _, sha256 = _mark(info, settings).read_text().split()
        return dataclasses.replace(info, bytes=int(size), sha256=sha256)
    except (OSError, ValueError):
        return info


def is_present(info: ModelInfo, settings: Settings) -> bool:
    """Whether a file of the right size is in place; :func:`model_path` also verifies it."""
    info = recorded(info, settings)
    try:
        return bool(info.sha256) and state_of(place(info, settings))[0] == info.bytes
    except OSError:
        return False


def model_path(info: ModelInfo, settings: Settings) -> Path:
    """The verified file of a model.

    Raises :class:`VivaceError`: ``model_not_pulled`` where there is none, ``model_checksum`` where it is another file
    than the catalogue means.
    """
    info = recorded(info, settings)
    path = place(info, settings)
    again = "vivace models remove {0}, then add it again" if info.path else "vivace models pull {0}"
    hint = f"Run: {again.format(info.name)}"
    if not path.is_file() and not (info.path and path.is_dir()):
        what = f"The file of the model {info.name} is gone: {path}" if info.path else f"{info.name} is not pulled"
        raise VivaceError(what, hint=hint, code="model_not_pulled", param="model")
    if _is_verified(info, path, settings):
        return path
    found = sha256_of_model(path) if state_of(path)[0] == info.bytes else ""
    if not info.sha256 or found != info.sha256:
        raise VivaceError(
            f"{path} is not the file that the catalogue means by {info.name}: {mismatch(info, path, found)}",
            hint=hint,
            code="model_checksum",
            param="model",
        )
    mark_verified(info, settings)
    return path


def mismatch(info: ModelInfo, path: Path, sha256: str) -> str:
    """How a file differs from the catalogue: its size, or its checksum."""
    size = state_of(path)[0]
    if not info.sha256:
        return "nothing records which file that is"
    if size != info.bytes:
        return f"it has {size} bytes instead of {info.bytes}"
    return f"its SHA-256 is {sha256} instead of {info.sha256}"


def mark_verified(info: ModelInfo, settings: Settings) -> None:
    """Remembers that the file in place was hashed and is the right one."""
    size, changed = state_of(place(info, settings))
    text = f"{size} {changed} {info.sha256}\n"
    write_atomic(_mark(info, settings), text.encode())


def _is_verified(info: ModelInfo, path: Path, settings: Settings) -> bool:
    try:
        size, changed = state_of(path)
        return bool(info.sha256) and _mark(info, settings).read_text() == f"{size} {changed} {info.sha256}\n"
    except (OSError, UnicodeDecodeError):
        return False


def _mark(info: ModelInfo, settings: Settings) -> Path:
    # Kept with vivace's own files even where the model is not: nothing is written beside a file of the user.
    return settings.models_dir / f"{info.name}.gguf.verified"


def remove(info: ModelInfo, settings: Settings) -> bool:
    """Deletes the file of a model, its partial downloads and, for an added one, its entry; whether there was anything.

    A file that the user added from this machine is only forgotten, never deleted.
    """

    def refuse() -> None:
        raise VivaceError(
            f"{info.name} is being pulled by another process", hint="Stop that one, or wait for it.", code="model_busy"
        )

    with locked(info.name, settings, refuse):
        added = load_added(settings)
        there = info.name in added
        if not info.path:
            there = _unlink(place(info, settings)) or there
        _unlink(_mark(info, settings))
        if work_dir(info, settings).exists():
            shutil.rmtree(work_dir(info, settings), ignore_errors=True)
            there = True
        if info.name in added:
            del added[info.name]
            write_atomic(added_path(settings), to_toml(added).encode())
    return there


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise VivaceError(f"Cannot delete {path}: {error.strerror}", code="file_error") from error
    return True


def add(
    path_or_repo: str | Path,
    settings: Settings,
    name: str | None = None,
    report: Callable[[PullEvent], None] | None = None,
) -> ModelInfo:
    """Registers a model of the user's own.

    It is a GGUF file or a folder of safetensors here, or ``owner/name[:file.gguf]`` on the hub (downloaded). Raises
    :class:`UsageError` for a name that is taken or unusable, and whatever :func:`open_model` or the hub refuse.
    """
    from vivace.models.weight_source import open_model

    text = str(path_or_repo)
    local = Path(path_or_repo).expanduser()
    if local.exists():
        if (same := _added_before(local, name, settings)) is not None:
            return same
        name = _free_name(name or (local.name if local.is_dir() else local.stem), settings)
        with open_model(local) as file:
            info = _describe(name, file)
        if local.is_dir():  # A GGUF file carries its tokenizer; a folder's is refused now rather than at the first use.
            from vivace.models.tokenizer_json import read_folder_vocabulary

            read_folder_vocabulary(local)
        size, sha256 = state_of(local)[0], sha256_of_model(local)
        info = dataclasses.replace(info, path=str(local.resolve()), bytes=size, sha256=sha256)
    elif re.fullmatch(r"[\w.-]+/[\w.-]+(:[^:]+\.gguf)?", text) and not text.startswith((".", "/")):
        info = _add_from_hub(text, settings, name, report)
    else:
        raise UsageError(
            f"{text} is neither a file here nor a hub repository",
            hint="Give the path of a .gguf file or model folder, or owner/name, or owner/name:file.gguf.",
            code="model_not_found",
            param="path_or_repo",
        )
    models = {**load_added(settings), info.name: info}
    write_atomic(added_path(settings), to_toml(models).encode())
    mark_verified(info, settings)
    return info


def _added_before(local: Path, name: str | None, settings: Settings) -> ModelInfo | None:
    """The model that this very file was added as, under the name that is wished, where nothing of it has changed."""
    for info in load_added(settings).values():
        same = info.path == str(local.resolve()) and name in (None, info.name)
        if same and is_present(info, settings) and _is_verified(recorded(info, settings), local, settings):
            return info
    return None


def _add_from_hub(
    text: str, settings: Settings, name: str | None, report: Callable[[PullEvent], None] | None
) -> ModelInfo:
    from vivace.models.gguf_file import open_gguf
    from vivace.models.sources import download_from_hub, resolve_on_hub

    repo, _, file = text.partition(":")
    source = resolve_on_hub(repo, file)
    name = _free_name(name or Path(source.file).stem, settings)
    draft = ModelInfo(name, "", 0, 0, "", 0, "", source=source)
    with locked(name, settings):
        work = work_dir(draft, settings)
        work.mkdir(parents=True, exist_ok=True)
        got = download_from_hub(draft, work, report or (lambda event: None))
        with open_gguf(got) as opened:
            info = _describe(name, opened)
        info = dataclasses.replace(info, source=source, bytes=got.stat().st_size, sha256=sha256_of(got))
        settings.models_dir.mkdir(parents=True, exist_ok=True)
        shutil.move(got, place(info, settings))
        shutil.rmtree(work, ignore_errors=True)
    return info


def _describe(name: str, file: WeightSource) -> ModelInfo:
    import math

    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise VivaceError(f"{file.path} does not say its architecture", code="model_file_invalid")
    window = file.metadata.get(f"{architecture}.context_length")
    if not isinstance(window, int) or window <= 0:
        raise VivaceError(f"{file.path} does not say its context window", code="model_file_invalid")
    return ModelInfo(
        name=name,
        architecture=architecture,
        parameters=sum(math.prod(file.tensor_shape(tensor)) for tensor in file.tensor_names),
        context_window=window,
        licence=str(file.metadata.get("general.license", "not stated")),
        bytes=0,
        sha256="",
    )


def _free_name(wish: str, settings: Settings) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", wish.lower()).lstrip("._-")[:80]
    if not NAME.fullmatch(name):
        raise UsageError(f"{wish!r} cannot be the name of a model", hint="Give one with --name.", param="name")
    if name in load_catalogue(settings):
        whose = "a model of the catalogue" if name in shipped() else "another model that you added"
        raise UsageError(f"{name} is already the name of {whose}", hint="Give another one with --name.", param="name")
    return name
