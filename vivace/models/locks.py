"""One lock per model, so that two pulls (or a pull and a removal) of the same file do not collide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vivace.errors import VivaceError
from vivace.settings import Settings


@contextmanager
def locked(name: str, settings: Settings, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock of the model ``name``; ``on_wait`` is called once where another process holds it.

    The operating system frees the lock when a process dies. Raises :class:`VivaceError` where the cache is read-only.
    """
    from filelock import FileLock, Timeout

    path = settings.cache_dir / "pull" / f"{name}.lock"
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if on_wait is not None:
                on_wait()
            lock.acquire()
    except OSError as error:
        raise VivaceError(
            f"Cannot write {path}: {error.strerror}", hint="Set VIVACE_CACHE_DIR to another folder.", code="file_error"
        ) from error
    try:
        yield
    finally:
        lock.release()
