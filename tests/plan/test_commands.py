"""The verbs from the outside: words, JSON, bad input, time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.plan.test_calibrate import Synthetic
from vivace.errors import VivaceError
from vivace.plan import commands
from vivace.plan.forward import forecast
from vivace.plan.library import DATA, Library
from vivace.plan.setup import make_setup
from vivace.settings import Settings


@contextmanager
def machine(model: str, settings: Settings) -> Iterator[Synthetic]:
    yield Synthetic(Library([DATA]), model)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "own_folder", lambda: tmp_path / "plan")
    monkeypatch.setenv("COLUMNS", "160")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands.plan_app(machine), list(arguments))


JSON_VERBS = {
    "forward": ("forward", "llama-3.1-8b", "--on", "h100"),
    "default": ("llama-3.1-8b", "--on", "h100", "--batch", "4"),
    "options first": ("--on", "wse-3", "gpt-oss-120b"),
    "devices": ("devices",),
    "models": ("models",),
    "show": ("show", "wse-3"),
    "turn": (
        "turn",
        "llama-3.1-8b",
        "--on",
        "h100",
        "--pass",
        "0.5",
        "--race",
        "3",
        "--tries",
        "2",
        "--deep",
        "60,0.3,0.8",
    ),
    "bare turn": ("turn", "--tok-s", "65", "--tok-s", "1000", "--speech"),
    "tier": ("tier",),
    "compare": ("compare", "llama-3.1-8b@h100", "llama-3.1-8b@wse-3"),
    "infer": ("infer", "--draws", "200000"),
    "validate": ("validate",),
    "calibrate": ("calibrate", "--rounds", "1", "--check", "coder-1.5b"),
}


@pytest.mark.parametrize("verb", JSON_VERBS)
def test_every_verb_prints_json_and_a_table(verb: str) -> None:
    told = run(*JSON_VERBS[verb])
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) > 2
    found = run(*JSON_VERBS[verb], "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)


def test_the_default_verb_is_the_forecast() -> None:
    assert run("llama-3.1-8b", "--on", "h100").stdout == run("forward", "llama-3.1-8b", "--on", "h100").stdout


def test_help_names_the_verbs() -> None:
    for arguments in ((), ("--help",)):
        told = run(*arguments).output
        for verb in (
            "forward",
            "infer",
            "turn",
            "compare",
            "validate",
            "calibrate",
            "devices",
            "models",
            "show",
            "tier",
        ):
            assert verb in told


def test_what_a_forecast_tells() -> None:
    told = run("deepseek-r1", "--on", "b200", "--count", "8", "--draft", "mtp", "--accept", "0.92,0.66,0.24").stdout
    for words in (
        "memory",
        "tok/s",
        "bound",
        "2.82 tokens a step",
        "distinct",
        "first token",
        "J/token",
        "not calibrated",
    ):
        assert words in told


def test_json_has_what_a_program_wants() -> None:
    found = json.loads(run("llama-3.1-70b", "--on", "wse-3", "--batch", "8", "--json").stdout)
    assert found["decode"]["user"]["low"] < found["decode"]["user"]["value"] < found["decode"]["user"]["high"]
    assert 0 < found["decode"]["occupancy"] <= 1
    assert found["memory"]["fits"] is True
    assert found["decode"]["step"]["bound"] == "latency floor"
    assert found["calibrated"] in (True, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("llama-3.1-700b", "--on", "h100"), "llama-3.1-70b"),
        (("llama-3.1-8b", "--on", "h1000"), "h100"),
        (("llama-3.1-8b", "--on", "h100", "--batch", "0"), "below 1"),
        (("llama-3.1-8b", "--on", "h100", "--weights", "3"), "no number format"),
        (("llama-3.1-405b", "--on", "h100", "--count", "2"), "GB too few"),
        (("llama-3.1-8b", "--on", "h100", "--prompt", "0"), "below 1"),
        (("llama-3.1-8b", "--on", "h100", "--cached", "-5"), "negative"),
        (("llama-3.1-8b", "--on", "h100", "--prompt", "131073"), "1 over the window"),
        (("turn", "--deep", "1"), "needs a model"),
        (("turn", "--tok-s", "65", "--pass", "2"), "pass rate"),
        (("turn", "--tok-s", "65", "--pass", "0.5", "--deep", "1,2"), "SECONDS,DOLLARS,PASS"),
        (("turn", "llama-3.1-8b", "--on", "h100", "--pass", "0.5", "--race", "500"), "GB too few"),
        (("compare", "llama-3.1-8b@h100"), "two set-ups"),
        (("infer", "--devices", "many"), "neither a number nor a range"),
        (("show", "h10"), "h100"),
        (("coder-0.5b", "--on", "this-machine"), "vivace plan calibrate"),
        (("show", "this-machine"), "vivace plan calibrate"),
        (("compare", "coder-0.5b@this-machine", "coder-0.5b@h100"), "vivace plan calibrate"),
        (("tier", "sol-fastest"), "sol-fast"),
        (("config.json", "--on", "h100"), "no file"),
    ],
)
def test_bad_input_is_told_in_words(arguments: tuple[str, ...], words: str) -> None:
    found = run(*arguments)
    assert isinstance(found.exception, VivaceError), found.output
    assert words in str(found.exception)


def test_figures_of_a_device_have_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = " ".join(run("show", "h100").stdout.split())
    for words in ("value 80 GB", "value 3.35 TB/s", "value 989 Top/s", "value 700 W", "value 0.9 grade"):
        assert words in told, words


@pytest.mark.parametrize("words", [("models",), ("show", "h100"), ("validate",), ("devices",), ("infer",)])
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = run(*words).stdout
    wide = [line for line in told.splitlines() if len(line) > 80 and line.startswith("  ")]
    assert told and not wide, wide


def test_a_miss_of_validation_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivace.plan.validate.TARGETS", {"GPU bf16": 0.001})
    found = run("validate")
    assert found.exit_code == 1
    assert "MISSED" in found.stdout


def test_a_calibrated_machine_is_a_device_from_then_on() -> None:
    assert "this-machine" not in run("devices").stdout
    assert run("calibrate", "--rounds", "1").exit_code == 0
    assert "this-machine" in run("devices").stdout
    told = run("coder-0.5b", "--on", "this-machine", "--weights", "8").stdout
    assert "calibrated" in told
    assert "not calibrated" not in told


def test_pages_are_written(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("llama-3.1-8b", "--on", "h100", "--html", str(page)).exit_code == 0
    assert page.read_text(encoding="utf-8").count("<svg") == 4
    refused = run("llama-3.1-8b", "--on", "h100", "--html", str(tmp_path))
    assert "cannot be written" in str(refused.exception)


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys, vivace.plan.commands as c; c.plan_app();"
        "assert not {'numpy', 'torch', 'gguf', 'rich.table', 'msgspec'} & set(sys.modules), 'at the start';"
        "from vivace.plan.library import Library; from vivace.plan.forward import forecast;"
        "from vivace.plan.setup import make_setup; l = Library();"
        "forecast(make_setup(l, l.model('llama-3.1-8b'), l.device('h100')));"
        "assert not {'numpy', 'torch', 'gguf'} & set(sys.modules), 'for a plan'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


PLANS = [
    ("llama-3.1-8b", "h100", {"context": 8192}),
    ("llama-3.1-70b", "wse-3", {"context": 131_072, "batch": 64}),
    ("kimi-k2.6", "wse-3", {"context": 100_000, "batch": 200}),
    ("deepseek-r1", "gb200", {"context": 131_072, "batch": 64}),
    ("llama-3.1-405b", "groq-lpu", {}),
]


@pytest.mark.parametrize(("model", "device", "given"), PLANS)
def test_a_plan_takes_less_than_a_tenth_of_a_second(model: str, device: str, given: dict[str, int]) -> None:
    """From opening the files to the finished forecast; the best of five, since the machine may be busy."""

    def once() -> float:
        began = time.perf_counter()
        library = Library()
        forecast(make_setup(library, library.model(model), library.device(device), **given))  # type: ignore[arg-type]
        return time.perf_counter() - began

    assert min(once() for _ in range(5)) < 0.1
