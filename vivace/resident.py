"""The resident service of a user: models stay loaded between two commands, in a process that nobody has to start.

The first command that wants a model starts it; later ones find it by its socket, whose name holds everything that would
make it another engine: version, code, interpreter, settings. So nobody is answered by an engine that was set up
otherwise than their own would be. It ends by itself after ``VIVACE_RESIDENT_MINUTES`` without a client.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import vivace
from vivace.client.resident import ResidentService, Watch
from vivace.errors import UsageError, VivaceError
from vivace.protocol.contracts import Generation, ModelCard, Principal, Service
from vivace.protocol.requests import ResponseRequest

if TYPE_CHECKING:
    from vivace.settings import Settings

MINUTES = 15.0
"""Idle minutes after which it ends, unless ``VIVACE_RESIDENT_MINUTES`` says otherwise; with 0 there is none."""
DAEMON = ("-m", "vivace.resident_daemon")
"""What the interpreter runs as the resident service; it is given the stem of the place and the minutes."""
START_TIMEOUT = 60.0
"""Seconds until a new one must answer."""
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds without a new start after one that failed; twice as long after each further one."""
ANSWER_TIMEOUT = 5.0
"""Seconds in which one that runs says that it does."""
LOST = 3
"""How often one that was found may be lost before it has opened a model."""
LONGEST_SOCKET_PATH = 100
"""Bytes. Linux takes 107 in the name of a Unix socket, macOS 103."""

_ENGINE = ("DEVICE", "PRECISION", "KERNELS", "THREADS", "KV_TOKENS", "KV_TYPE")
_FOLDERS = ("MODELS_DIR", "CACHE_DIR")
_AROUND = ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")

Tell = Callable[[str], None]


class Place(Struct, frozen=True):
    """The files of one resident service, side by side; ``stem`` is their common path."""

    stem: str

    @property
    def socket(self) -> Path:
        return Path(f"{self.stem}.sock")

    @property
    def outdated(self) -> list[Path]:
        """The sockets of what the same installation had here before its code was changed."""
        folder, _, name = self.stem.rpartition("/")
        same = "-".join(name.split("-")[:2])
        return [path for path in Path(folder).glob(f"{same}-*.sock") if path != self.socket]

    @property
    def log(self) -> Path:
        return Path(f"{self.stem}.log")

    @property
    def lock(self) -> Path:
        """Held while one is being started."""
        return Path(f"{self.stem}.lock")

    @property
    def failures(self) -> Path:
        """How often starting failed, and when it did last."""
        return Path(f"{self.stem}.failed")


def place_of(environ: Mapping[str, str]) -> Place:
    """Where the resident service for these settings is, given as the environment says them."""
    values = {name.upper(): value for name, value in environ.items()}
    said = [values.get(f"VIVACE_{name}", "") for name in _ENGINE]
    said += [_whole(values.get(f"VIVACE_{name}", "")) for name in _FOLDERS]
    said += [values.get(name, "") for name in _AROUND]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    root, changed = _code()
    folder = state_dir_of(environ)
    name = f"resident-{_digest([said, cores, sys.executable, root])}-{vivace.__version__}-{_digest(changed)}"
    if len(os.fsencode(f"{folder}/{name}.sock")) > LONGEST_SOCKET_PATH:
        folder = f"{_runtime_dir()}/{_digest(folder)}"
    return Place(f"{folder}/{name}")


def state_dir_of(environ: Mapping[str, str]) -> str:
    """:attr:`vivace.settings.Settings.state_dir` without what it takes to read all settings."""
    values = {name.upper(): value for name, value in environ.items()}
    return _whole(values.get("VIVACE_STATE_DIR", "")) or _state_dir()


def environment_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which another process makes the same settings."""
    set_here = {f"VIVACE_{name.upper()}": getattr(settings, name) for name in settings.model_fields_set}
    rest = {name: value for name, value in environ.items() if name.upper() not in set_here}
    return rest | {name: str(value) for name, value in set_here.items() if value is not None}


def minutes_of(environ: Mapping[str, str]) -> float:
    """``VIVACE_RESIDENT_MINUTES``. Raises :class:`UsageError` for what is no number of minutes."""
    said = next((value for name, value in environ.items() if name.upper() == "VIVACE_RESIDENT_MINUTES"), "")
    try:
        minutes = float(said or MINUTES)
    except ValueError:
        minutes = -1.0
    if not 0 <= minutes < math.inf:
        raise UsageError(
            f"VIVACE_RESIDENT_MINUTES is {said!r}; it takes a number of minutes, 0 for no resident service.",
            param="VIVACE_RESIDENT_MINUTES",
        )
    return minutes


async def resident_service(
    settings: Settings, watch: Watch = lambda stage, share: None, tell: Tell = lambda line: None
) -> ResidentService | None:
    """The resident service for these settings, started if none answers.

    None where it is switched off, or where it does not start; ``tell`` is then told so. ``watch`` is told what loading
    does when a model is opened.
    """
    environ = environment_of(settings)
    minutes = minutes_of(environ)
    if minutes == 0:
        return None
    place = place_of(environ)
    try:
        return await found(place, watch) or await _start(place, environ, minutes, watch)
    except (VivaceError, OSError) as error:
        tell(f"{error} Going on without it.")
        return None


async def found(place: Place, watch: Watch = lambda stage, share: None) -> ResidentService | None:
    """The service there, if it answers."""
    try:
        status = place.socket.lstat()
    except OSError:
        return None
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        return None
    service = ResidentService(place.socket, watch)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            await service.status()
    except (VivaceError, TimeoutError):  # the socket of a process that is ending may still take connections
        await service.close()
        return None
    return service


class EditService:
    """What a command asks: the resident service, or ``local`` where there is none.

    ``settings`` are made only where the resident has to be started or replaced; a command that finds it needs none.
    ``pull`` fetches a model that is not here yet, in this process, where its progress is seen. For a command that lasts
    another one is started when the resident ends meanwhile, as the next response is asked for.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        local: Callable[[Settings], Service],
        pull: Callable[[str, Settings], None],
        watch: Watch,
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._local = local
        self._pull = pull
        self._watch = watch
        self._tell = tell
        self._service: Service | None = None
        self._opening = asyncio.Lock()
        """Of several that open models at a time, one finds out what became of the resident."""

    async def open(self, model: str) -> ModelCard:
        async with self._opening:
            return await self._open_on_any(model)

    async def _open_on_any(self, model: str) -> ModelCard:
        if self._service is not None and not isinstance(self._service, ResidentService):
            return await self._service.open(model)
        for left in reversed(range(LOST)):
            resident = await self._resident()
            if resident is None:
                break
            self._service = resident
            try:
                card = await self._open(resident, model)
            except VivaceError as error:
                if error.code != "service_gone":
                    raise
                if await self._lost(resident, model, left == 0):
                    break
            else:
                _forgive(resident)
                resident.fresh = False
                resident.revive = self._revive
                return card
        self._service = self._local(self._settings())
        return await self._service.open(model)

    async def input_tokens(self, request: ResponseRequest) -> int:
        return await self._opened.input_tokens(request)

    def start(self, request: ResponseRequest, principal: Principal) -> Generation:
        return self._opened.start(request, principal)

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()

    @property
    def _opened(self) -> Service:
        if self._service is None:
            raise VivaceError("No model is open.", code="engine")
        return self._service

    async def _resident(self) -> ResidentService | None:
        if isinstance(self._service, ResidentService):
            return self._service
        if minutes_of(os.environ) == 0:
            return None
        ready = await found(place_of(os.environ), self._watch)
        return ready or await resident_service(self._settings(), self._watch, self._tell)

    async def _revive(self) -> Path | None:
        """The socket of one that runs, in the place of one that has ended; None where none can be had."""
        other = await resident_service(self._settings(), self._watch, self._tell)
        if other is None:
            return None
        await other.close()
        return Path(other.address.socket)

    async def _open(self, resident: ResidentService, model: str) -> ModelCard:
        try:
            return await resident.open(model)
        except VivaceError as error:
            if error.code != "model_not_pulled":
                raise
        await asyncio.to_thread(self._pull, model, self._settings())
        return await resident.open(model)

    async def _lost(self, resident: ResidentService, model: str, last: bool) -> bool:
        """It ended while it opened the model; whether to do without one now.

        One that was found may have come to its idle end in this moment, and another is started. One that was started
        for this has died of the model, and the next one would too.
        """
        self._service = None
        await resident.close()
        if not (resident.fresh or last):
            return False
        place = Place(resident.address.socket.removesuffix(".sock"))
        _failed(place)
        self._tell(f"The resident service ended while it opened {model}. Its log: {place.log}. Going on without it.")
        return True


async def _start(place: Place, environ: Mapping[str, str], minutes: float, watch: Watch) -> ResidentService:
    """Start one, unless somebody else does first. Raises :class:`VivaceError` ``resident_failed``."""
    from filelock import FileLock, Timeout

    _make_private(place.socket.parent)
    lock = FileLock(place.lock)
    until = time.monotonic() + START_TIMEOUT
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            if time.monotonic() > until:
                raise _did_not_start("another command has been starting it for too long", place) from None
            await asyncio.sleep(0.02)
            if (service := await found(place, watch)) is not None:
                return service
    try:
        if (service := await found(place, watch)) is not None:
            return service
        _check_pause(place)
        try:
            return await _launch(place, environ, minutes, watch)
        except VivaceError:
            _failed(place)
            raise
    finally:
        lock.release()


async def _launch(place: Place, environ: Mapping[str, str], minutes: float, watch: Watch) -> ResidentService:
    import subprocess

    with os.fdopen(os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as log:
        process = subprocess.Popen(
            [sys.executable, *DAEMON, place.stem, repr(minutes)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**environ, "PYTHONPATH": os.pathsep.join(_import_path(environ))},
        )
    until = time.monotonic() + START_TIMEOUT
    while time.monotonic() < until:
        if (service := await found(place, watch)) is not None:
            service.fresh = True
            return service
        if (ended := process.poll()) is not None:
            raise _did_not_start(f"it ended with status {ended}", place)
        await asyncio.sleep(0.01)
    process.kill()
    raise _did_not_start(f"it did not answer within {START_TIMEOUT:g} s", place)


def _import_path(environ: Mapping[str, str]) -> list[str]:
    """The code of this very process first: the new one runs in another folder."""
    said = [_whole(part) for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return [str(Path(vivace.__file__).parents[1]), *said]


def _whole(path: str) -> str:
    """The path from the root on; empty stays empty."""
    return str(Path(path).absolute()) if path else ""


def _did_not_start(reason: str, place: Place) -> VivaceError:
    return VivaceError(f"The resident service did not start: {reason}. Its log: {place.log}.", code="resident_failed")


def _failed(place: Place) -> None:
    count, _ = _failures(place)
    place.failures.write_text(json.dumps([count + 1, time.time()]))


def _forgive(resident: ResidentService) -> None:
    place = Place(resident.address.socket.removesuffix(".sock"))
    place.failures.unlink(missing_ok=True)


def _failures(place: Place) -> tuple[int, float]:
    """How often starting failed since it last went well, and when it did last (seconds since 1970)."""
    try:
        count, at = json.loads(place.failures.read_text())
        return int(count), float(at)
    except (OSError, ValueError, TypeError):
        return 0, 0.0


def _check_pause(place: Place) -> None:
    count, at = _failures(place)
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(count - 1, 10)) if count else 0.0
    left = at + pause - time.time()
    if 0 < left <= pause:
        raise _did_not_start(f"it failed {count} times, and is tried again in {left:.0f} s", place)


def _make_private(folder: Path) -> None:
    """Make the folder of the socket. Raises :class:`VivaceError` for one that belongs to somebody else."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise VivaceError(f"{folder} belongs to another user.", code="resident_failed")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:10]


def _state_dir() -> str:
    import platformdirs

    return platformdirs.user_state_dir("vivace")


def _runtime_dir() -> str:
    """A folder with a short name that only this user writes in."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and len(os.fsencode(given)) < 32 and os.access(given, os.W_OK):
        return f"{given}/vivace"
    return f"/tmp/vivace-{os.getuid()}"


def _code() -> tuple[str, int]:
    """Where this code is, and when it was changed last: somebody may be working on it."""
    root = os.path.dirname(os.path.abspath(vivace.__file__))  # noqa: PTH100, PTH120 - this runs in each command
    newest = 0
    with os.scandir(root) as rooms:
        folders = [root, *(room.path for room in rooms if room.is_dir() and room.name[0] not in "._")]
    for folder in folders:
        with os.scandir(folder) as files:
            newest = max([newest, *(file.stat().st_mtime_ns for file in files if file.name.endswith((".py", ".so")))])
    return root, newest
