"""Models whose checksum the catalogue does not know: the hub's record checks the first pull, and that one all later."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest
from fake_sources import COMMIT, Hub
from typer.testing import CliRunner

from vivace.errors import VivaceError
from vivace.models import catalogue, sources
from vivace.models.catalogue import HubSource, Mirror, ModelInfo, added_path, load_added, to_toml
from vivace.models.commands import models_app
from vivace.models.pull import pull
from vivace.models.sources import PullEvent, identify
from vivace.models.store import is_present, model_path, recorded, remove
from vivace.settings import Settings

DATA = random.Random(1).randbytes(200_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
INFO = ModelInfo(
    "unknown", "qwen2", 7, 32768, "Apache-2.0", source=HubSource("some/repo", "main", "unknown-q4_k_m.gguf")
)


def test_the_first_pull_is_checked_by_the_hubs_record_and_kept(here: Settings, hub: Hub) -> None:
    hub.files["unknown-q4_k_m.gguf"] = DATA
    assert recorded(INFO, here) == INFO
    assert not is_present(INFO, here)
    events: list[PullEvent] = []
    path = pull(INFO, here, report=events.append)
    assert path.read_bytes() == DATA
    assert [event.source for event in events if event.kind == "failed"] == ["cache"]
    kept = recorded(INFO, here)
    assert (kept.bytes, kept.sha256) == (len(DATA), SHA256)
    assert is_present(INFO, here)
    assert model_path(INFO, here) == path
    hub.files.clear()
    assert pull(INFO, here) == path  # Nothing is asked any more.

    path.write_bytes(DATA[:-1] + b"?")
    with pytest.raises(VivaceError, match=f"SHA-256 is .* instead of {SHA256}"):
        model_path(INFO, here)
    hub.files["unknown-q4_k_m.gguf"] = DATA[:-1] + b"!"  # What was pulled first is what is meant from then on.
    with pytest.raises(VivaceError) as caught:
        pull(INFO, here)
    assert caught.value.code == "model_checksum"
    assert remove(INFO, here)
    assert recorded(INFO, here) == INFO
    assert pull(INFO, here).read_bytes() == DATA[:-1] + b"!"  # Removing forgets.


def test_another_file_than_the_hub_recorded_is_refused(
    here: Settings, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files["unknown-q4_k_m.gguf"] = DATA

    def damaged(info: ModelInfo, work: Path, report: object) -> Path:
        (work / "got").write_bytes(DATA[:-1] + b"?")
        return work / "got"

    monkeypatch.setitem(pull.__globals__["SOURCES"], "hub", damaged)
    with pytest.raises(VivaceError, match=f"instead of {SHA256}") as caught:
        pull(INFO, here, "hub")
    assert caught.value.code == "model_checksum"
    assert not is_present(INFO, here)


def test_the_commit_of_the_record_is_the_one_fetched(here: Settings, hub: Hub) -> None:
    hub.files["unknown-q4_k_m.gguf"] = DATA
    found = identify(INFO, "hub")
    assert found.source == HubSource("some/repo", COMMIT, "unknown-q4_k_m.gguf")
    assert (found.bytes, found.sha256) == (len(DATA), SHA256)
    assert identify(found, "mirror") == found


def test_a_record_that_is_no_sha256_is_not_believed(here: Settings, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["unknown-q4_k_m.gguf"] = DATA
    real = sources._ask_hub

    def small_file(question: object) -> object:
        answer = real(question)  # type: ignore[arg-type]
        object.__setattr__(answer, "etag", "0123456789abcdef0123456789abcdef01234567")  # A git blob's name.
        return answer

    monkeypatch.setattr(sources, "_ask_hub", small_file)
    with pytest.raises(VivaceError, match=r"hub: no SHA-256 of the file is recorded there") as caught:
        pull(INFO, here)
    assert caught.value.code == "model_unavailable"
    assert "mirror: the catalogue names no checksum" in caught.value.message


@pytest.mark.parametrize("blob", [SHA256, "0123456789abcdef"])
def test_the_hubs_own_cache_names_a_file_after_its_checksum(
    here: Settings, no_hub: None, tmp_path: Path, blob: str
) -> None:
    repo = tmp_path / "hub-cache" / "models--some--repo"
    (repo / "blobs").mkdir(parents=True)
    (repo / "blobs" / blob).write_bytes(DATA)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "snapshots" / COMMIT).mkdir(parents=True)
    (repo / "snapshots" / COMMIT / "unknown-q4_k_m.gguf").symlink_to(repo / "blobs" / blob)
    if blob == SHA256:
        assert pull(INFO, here, "cache").read_bytes() == DATA
        assert recorded(INFO, here).sha256 == SHA256
    else:
        with pytest.raises(VivaceError, match="no SHA-256"):
            pull(INFO, here, "cache")


def test_a_file_that_nothing_records_is_not_used(here: Settings) -> None:
    here.models_dir.mkdir()
    (here.models_dir / "unknown.gguf").write_bytes(DATA)
    assert not is_present(INFO, here)
    with pytest.raises(VivaceError, match="nothing records which file that is") as caught:
        model_path(INFO, here)
    assert caught.value.code == "model_checksum"
    (here.models_dir / "unknown.gguf.verified").write_text("damaged")
    assert recorded(INFO, here) == INFO


def test_a_full_disk_is_said_once_the_size_is_known(here: Settings, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.files["unknown-q4_k_m.gguf"] = DATA
    monkeypatch.setitem(pull.__globals__, "free_bytes", lambda folder: 1000)
    with pytest.raises(VivaceError, match=r"needs 200\.0 kB") as caught:
        pull(INFO, here)
    assert caught.value.code == "disk_full"


@pytest.mark.parametrize(
    "changes",
    [{"source": None}, {"mirror": Mirror(("a==1",), "*")}, {"path": "/a.gguf"}, {"bytes": 5}, {"sha256": "00"}],
)
def test_only_hub_entries_may_lack_a_checksum(here: Settings, changes: dict[str, object]) -> None:
    import dataclasses

    added_path(here).parent.mkdir(parents=True)
    added_path(here).write_text(to_toml({"unknown": INFO}))
    assert load_added(here) == {"unknown": INFO}
    added_path(here).write_text(to_toml({"unknown": dataclasses.replace(INFO, **changes)}))  # type: ignore[arg-type]
    with pytest.raises(VivaceError, match="unusable name, size or checksum"):
        load_added(here)


def test_the_list_says_that_the_size_is_unknown(here: Settings, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVACE_MODELS_DIR", str(here.models_dir))
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(here.cache_dir))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(catalogue, "shipped", lambda: {"unknown": INFO})

    def listed() -> tuple[str, dict[str, object]]:
        text = CliRunner().invoke(models_app, ["list"], catch_exceptions=False).stdout
        (entry,) = json.loads(CliRunner().invoke(models_app, ["list", "--json"], catch_exceptions=False).stdout)
        return text, entry

    text, entry = listed()
    assert "unknown" in text.splitlines()[1].split()[1:]
    assert (entry["bytes"], entry["sha256"], entry["present"]) == (None, None, False)
    hub.files["unknown-q4_k_m.gguf"] = DATA
    pull(INFO, here)
    text, entry = listed()
    assert "200.0 kB" in text
    assert (entry["bytes"], entry["sha256"], entry["present"]) == (len(DATA), SHA256, True)
