"""The catalogue, the user's own models, and the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sources import COMMIT, Hub
from model_samples import small_vocabulary, write_llama
from typer.testing import CliRunner

from vivace.engine.spec import read_spec
from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import added_path, default_model, find_model, load_catalogue, shipped, to_toml
from vivace.models.commands import models_app
from vivace.models.gguf_file import open_gguf
from vivace.models.progress import show_progress
from vivace.models.pull import pull
from vivace.models.sources import PullEvent
from vivace.models.store import add, is_present, model_path, remove
from vivace.settings import Settings


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "My Model.gguf", small_vocabulary("qwen2"))


def test_the_shipped_catalogue_is_consistent(here: Settings) -> None:
    models = load_catalogue(here)
    whole = ["coder-0.5b", "coder-1.5b", "smollm2-135m"]
    assert list(models) == [*whole, "coder-3b", "coder-7b", "coder-30b-a3b"]
    assert default_model("fast").name == "coder-0.5b"
    assert default_model("deep").name == "coder-1.5b"
    for info in models.values():
        assert info.source is not None
        assert info.path == ""
        assert 0 < info.pass_parameters <= info.parameters
        assert info.kv_values > 0
        assert info.licence == "Apache-2.0" or "non-commercial" in info.licence
        assert info.licence == "Apache-2.0" or "no commercial use" in info.caution
    for info in (models[name] for name in whole):
        assert info.mirror is not None
        assert info.bytes > info.parameters / 2
        assert all(package.count("==") == 1 for package in info.mirror.packages)
    assert len({models[name].sha256 for name in whole}) == 3
    for info in models.values():
        assert info.name in whole or (info.bytes, info.sha256, info.mirror) == (0, "", None)
    with pytest.raises(UsageError):
        default_model("")


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2-135m", "coder-0.5b"])
def test_the_catalogue_says_what_the_files_say(name: str, model_file: Callable[[str], Path]) -> None:
    info = shipped()[name]
    with open_gguf(model_file(name)) as file:
        assert file.metadata["general.architecture"] == info.architecture
        assert file.metadata[f"{info.architecture}.context_length"] == info.context_window
        rows, columns = file.tensor_shape("token_embd.weight")
        # Tied models count their embedding once, also where the file repeats it as the output matrix.
        tied = "output.weight" in file.tensor_names
        import math

        total = sum(math.prod(file.tensor_shape(tensor)) for tensor in file.tensor_names)
        assert total - (rows * columns if tied else 0) == info.parameters
        spec = read_spec(file)
        assert spec.linear_parameters == info.pass_parameters
        assert 2 * spec.layers * spec.kv_width == info.kv_values


def test_an_unknown_model_names_the_nearest(here: Settings) -> None:
    with pytest.raises(UsageError, match=r"Did you mean coder-0\.5b") as caught:
        find_model("coder-05b", here)
    assert caught.value.code == "model_not_found"
    assert caught.value.exit_code == 2


def test_add_a_file(model: Path, here: Settings) -> None:
    info = add(model, here)
    assert info.name == "my-model"
    assert (info.architecture, info.context_window) == ("llama", 256)
    assert find_model("my-model", here) == info
    assert model_path(info, here) == pull(info, here) == model.resolve()
    assert is_present(info, here)
    assert add(model, here) == add(model, here, name="my-model") == info  # the same file again changes nothing
    assert add(model, here, name="second").path == info.path
    other = model.parent / "elsewhere" / model.name
    other.parent.mkdir()
    other.write_bytes(model.read_bytes())
    with pytest.raises(UsageError, match="already the name of another"):
        add(other, here)
    with pytest.raises(UsageError, match="already the name of a model of the catalogue"):
        add(model, here, name="coder-0.5b")
    with pytest.raises(UsageError, match="cannot be the name"):
        add(model, here, name="///")
    model.write_bytes(model.read_bytes() + b"x")
    with pytest.raises(VivaceError, match="is not the file"):
        model_path(info, here)
    with pytest.raises(UsageError, match="already the name of another"):
        add(model, here)  # it is another file now
    assert remove(info, here)
    assert model.exists()  # The user's own file is forgotten, not deleted.
    with pytest.raises(UsageError):
        find_model("my-model", here)


def test_add_refuses_what_is_no_model(tmp_path: Path, here: Settings) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model, and long enough to have a header")
    with pytest.raises(VivaceError, match="does not start with GGUF"):
        add(bad, here)
    for nothing in ("nowhere.gguf", "/a/b", "a/b/c", ""):
        with pytest.raises(VivaceError):
            add(nothing, here)
    assert not added_path(here).exists()


def test_add_from_the_hub(model: Path, here: Settings, hub: Hub) -> None:
    hub.files = {"tiny-q8_0.gguf": model.read_bytes(), "README.md": b"text"}
    info = add("some/repo", here, name="tiny")
    assert info.source is not None
    assert (info.source.repo, info.source.revision, info.source.file) == ("some/repo", COMMIT, "tiny-q8_0.gguf")
    assert model_path(info, here).read_bytes() == model.read_bytes()
    hub.files["other.gguf"] = b"not a model, and long enough to have a header"
    with pytest.raises(UsageError, match="has 2 GGUF files") as caught:
        add("some/repo", here)
    assert "some/repo:other.gguf" in caught.value.hint
    with pytest.raises(UsageError, match=r"has no file absent\.gguf"):
        add("some/repo:absent.gguf", here)
    with pytest.raises(VivaceError, match="does not start with GGUF"):
        add("some/repo:other.gguf", here)
    assert list(load_catalogue(here)) == [*shipped(), "tiny"]


def test_add_from_the_hub_offline(here: Settings, no_hub: None) -> None:
    with pytest.raises(VivaceError, match="Cannot look up some/repo on the hub: cannot be reached"):
        add("some/repo", here)


def test_added_entries_survive_strange_paths(model: Path, here: Settings, tmp_path: Path) -> None:
    strange = tmp_path / 'quo"te \\ back\x7f\x01 日本.gguf'
    model.rename(strange)
    info = add(strange, here, name="strange")
    assert find_model("strange", here) == info
    assert to_toml({}) == ""


@pytest.mark.parametrize("text", ["[[model", "[[model]]\nname = 3", '[[model]]\nname = "../x"', "model = 5"])
def test_a_damaged_list_of_added_models_is_said(here: Settings, text: str) -> None:
    added_path(here).parent.mkdir(parents=True)
    added_path(here).write_text(text)
    with pytest.raises(VivaceError, match=r"added\.toml") as caught:
        load_catalogue(here)
    assert caught.value.code == "catalogue_invalid"


def test_commands(model: Path, here: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVACE_MODELS_DIR", str(here.models_dir))
    monkeypatch.setenv("VIVACE_CACHE_DIR", str(here.cache_dir))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(models_app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "coder-0.5b" in run("list")
    assert json.loads(run("add", str(model), "--name", "mine", "--json"))["path"] == str(model.resolve())
    assert run("path", "mine") == f"{model.resolve()}\n"
    assert run("pull", "mine") == ""
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json"))}
    assert entries["mine"]["present"] is True
    assert entries["coder-1.5b"]["present"] is False
    assert "present" in run("list")
    assert run("remove", "mine") == ""
    with pytest.raises(UsageError):
        run("path", "mine")
    with pytest.raises(VivaceError, match="not pulled"):
        run("path", "coder-1.5b")


def test_the_commands_start_fast() -> None:
    code = "import vivace.models.commands, vivace.models.pull, vivace.models.tokenizer, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "gguf", "huggingface_hub", "tokenizers", "filelock"}.intersection(loaded)


def test_progress_that_never_began_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with show_progress("m") as report:
        pass
    assert capfd.readouterr() == ("", "")
    with show_progress("m") as report:
        report(PullEvent("source", "fetching m", "hub"))
    assert capfd.readouterr() == ("", "fetching m\n")
