"""``vivace serve``: what it prints can be pasted, its check tells the truth, and it ends as told."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2 as httpx
import typer
from typer.testing import CliRunner

from tests.server.serving import KEY, by_key, paced
from vivace.backends.paced_script import Rule, Script, Step
from vivace.errors import UsageError
from vivace.protocol.contracts import ModelCard
from vivace.server.command import Choice, Composed, serve_command
from vivace.server.settings_text import claude_code, codex, opencode, output_limit, reachable, sdk, settings_text
from vivace.settings import Settings

CARDS = [
    ModelCard("fast/one", 32_768, "chat", True, tools=True),
    ModelCard("deep", 262_144, "chat", True, reasoning=True),
]


@asynccontextmanager
async def compose(choice: Choice, settings: Settings) -> AsyncIterator[Composed]:
    """The paced backend, whatever is asked for; ``--backend broken`` fails every turn."""
    broken = Script([Rule(steps=[Step(error="server_error", message="worker lost")])])
    gateway = paced(
        choice.tok_s or 1000.0, (choice.ttft_ms or 0.0) / 1000, broken if "broken" in choice.backends else None
    )
    yield Composed(gateway, by_key if "keyed" in choice.backends else None)
    await gateway.close()


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(serve_command(compose))


@app.callback()
def _root(context: typer.Context) -> None:
    context.obj = Settings()


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["serve", *arguments])
    return result.exit_code, result.output, result.exception


def test_a_check_measures_a_turn_each_way() -> None:
    code, output, _ = run("--check", "--tok-s", "2000", "--ttft-ms", "30", "--backend", "keyed")
    assert code == 0
    for way in ("HTTP", "WebSocket"):
        found = re.search(rf"{way} +ok +TTFT ([\d.,]+) ms +256 tokens +([\d,]+) tok/s", output)
        assert found is not None, output
        assert 30 <= float(found[1]) < 300
        assert 1000 < float(found[2].replace(",", "")) < 2600


def test_a_check_without_websockets_and_one_that_fails() -> None:
    code, output, _ = run("--check", "--no-websockets")
    assert code == 0 and "WebSocket" not in output
    code, output, _ = run("--check", "--backend", "broken")
    assert code == 1 and output.count("failed: ") == 2 and "worker lost" in output


def test_what_cannot_be_served_is_refused() -> None:
    _, _, error = run("--host", "0.0.0.0")
    assert isinstance(error, UsageError) and error.code == "keys_required"
    _, _, error = run("--check", "--model", "pacd")
    assert isinstance(error, UsageError) and "paced" in error.hint


def test_codex_settings_are_toml_with_the_keys_that_codex_knows() -> None:
    found = tomllib.loads(codex("http://127.0.0.1:8000", CARDS[0], keys=True, websockets=True))
    assert (found["model"], found["model_provider"]) == ("fast/one", "vivace")
    assert found["model_providers"]["vivace"] == {
        "name": "Vivace",
        "base_url": "http://127.0.0.1:8000/v1",
        "env_key": "VIVACE_API_KEY",
        "wire_api": "responses",
        "supports_websockets": True,
        "model_catalog_url": "http://127.0.0.1:8000/v1/models",
    }
    # A variable that is named and not set would keep Codex from starting; without any token it fetches no catalogue.
    found = tomllib.loads(codex("http://127.0.0.1:8000", CARDS[0], keys=False, websockets=False))
    provider = found["model_providers"]["vivace"]
    assert "env_key" not in provider and provider["experimental_bearer_token"] == "none"


def test_opencode_settings_have_each_models_limits() -> None:
    found = json.loads(opencode("http://127.0.0.1:8000", CARDS, keys=False))
    models = found["provider"]["vivace"]["models"]
    assert models["fast/one"]["limit"] == {"context": 32_768, "output": 8192}
    assert models["deep"]["limit"] == {"context": 262_144, "output": 32_768} and models["deep"]["reasoning"] is True
    assert found["model"] == "vivace/fast/one"
    assert [output_limit(window) for window in (2, 4096, 10**6)] == [1, 1024, 32_768]


def test_the_other_settings() -> None:
    environment = claude_code("http://127.0.0.1:8000", CARDS[1], keys=True)
    assert "ANTHROPIC_AUTH_TOKEN=$VIVACE_API_KEY\n" in environment and "262,144 tokens" in environment
    subprocess.run(["sh", "-nc", environment], check=True)
    ast.parse(sdk("http://127.0.0.1:8000", CARDS[0], keys=True))
    assert reachable("http://0.0.0.0:80") == reachable("http://[::]:80") == "http://127.0.0.1:80"
    assert settings_text("http://0.0.0.0:80", CARDS, keys=False).count("http://127.0.0.1:80") == 5


def test_it_serves_says_where_and_ends_with_0(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    program = "from tests.server.test_command import app; app(['serve', '--port', '0', '--backend', 'keyed'])"
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"vivace serves paced at (http://127\.0\.0\.1:\d+)\n", line)
        assert found is not None, line
        listed = httpx.get(f"{found[1]}/v1/models", headers={"authorization": f"Bearer {KEY}"})
        assert listed.json()["data"][0]["id"] == "paced"
        process.send_signal(signal.SIGINT)
        assert found[1] in process.stdout.read()
        assert process.wait(10) == 0


def test_a_plan_that_refuses_every_model_is_named(tmp_path: Path) -> None:
    """Through the gateway that ``vivace serve`` composes, which knows the plans."""
    tiers = tmp_path / "tiers.toml"
    tiers.write_text('default_plan = "guest"\n[[plan]]\nid = "guest"\nmodels = ["coder-*"]\n')
    environ = {**os.environ, "VIVACE_TIERS_FILE": str(tiers), "VIVACE_STATE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "vivace", "serve", "--backend", "paced", "--port", "0"]
    told = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert (told.returncode, told.stdout) == (2, "")
    assert "The plan 'guest' does not include paced: it allows coder-*." in told.stderr
    assert "default_plan" in told.stderr
