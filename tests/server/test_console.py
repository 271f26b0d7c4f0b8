"""The console in a real browser: live figures, an edit whose diff grows, keys, and nothing from elsewhere."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import httpx2
import pytest
from openai import OpenAI

from tests.server.browser import browser
from tests.server.serving import KEY, by_key, paced, serving
from vivace.backends.paced_script import Rule, Script, Step, When
from vivace.protocol.usage import Usage
from vivace.service.database import open_database
from vivace.service.gateway import LocalGateway
from vivace.service.ledger import Entry, Ledger
from vivace.service.plans import Plan, Window
from vivace.service.tiers import BUILT_IN, TierFile, TierTable
from vivace.service.writer import Writer

NEW_FILE = (
    "def plus(a, b):\n"
    '    """The sum of two numbers."""\n'
    "    return a + b\n\n\n"
    "def total(numbers):\n"
    "    result = 0\n"
    "    for number in numbers:\n"
    "        result = plus(result, number)\n"
    "    return result\n"
)
SCRIPT = Script(
    [
        Rule(steps=[Step(text=NEW_FILE)], when=When(user="Rename add")),
        Rule(steps=[Step(tokens=100_000)], when=When(user="long")),
    ]
)


def test_the_console_shows_what_runs_and_an_edit_as_it_streams(tmp_path: Path) -> None:
    with serving(lambda: paced(60.0, script=SCRIPT)) as server, browser(tmp_path / "profile") as page:
        page.open(server.root + "/")
        page.until("document.getElementById('state').textContent === 'live'")
        client = OpenAI(base_url=server.base_url, api_key="none")
        stream = client.responses.create(model="paced", input="a long one", stream=True)
        next(iter(stream))
        page.until("document.querySelectorAll('#responses td').length === 9")
        assert page.run("document.querySelector('#responses td').textContent").startswith("resp_")
        assert page.run("document.getElementById('running-count').textContent") == "1"
        page.until("Number(document.getElementById('rate').textContent.replaceAll(',', '')) > 0")
        tokens = "document.querySelectorAll('#responses td')[5].textContent"
        first = page.run(tokens)
        page.until(f"{tokens} !== {first!r}")
        assert re.fullmatch(r"~?[\d,]+|–", page.run(tokens))

        page.run("document.getElementById('go').click()")
        page.until("document.querySelectorAll('#diff .plus').length === 1")
        halfway = page.run("document.querySelectorAll('#diff .later').length")
        assert halfway > 0, "the rest of the file is not taken for deleted while the answer streams"
        page.until("document.getElementById('result').textContent.includes('tokens a second')")
        assert page.run("[...document.querySelectorAll('#diff .plus')].map(row => row.textContent)") == [
            "+ def plus(a, b):",
            "+         result = plus(result, number)",
        ]
        assert page.run("[...document.querySelectorAll('#diff .minus')].map(row => row.textContent)") == [
            "- def add(a, b):",
            "-         result = add(result, number)",
        ]
        assert page.run("document.querySelectorAll('#diff .later').length") == 0
        if folder := os.environ.get("VIVACE_SCREENSHOTS"):
            page.screenshot(Path(folder) / "console.png")
        stream.close()
        page.until("document.getElementById('running-count').textContent === '0'")
        loaded = page.run("performance.getEntriesByType('resource').map(entry => entry.name)")
        assert loaded and all(name.startswith(server.root) for name in loaded)
        assert page.faults == []


def test_an_edit_can_be_stopped(tmp_path: Path) -> None:
    with serving(lambda: paced(50.0, script=SCRIPT)) as server, browser(tmp_path / "profile") as page:
        page.open(server.root + "/")
        page.until("document.getElementById('state').textContent === 'live'")
        page.run("document.getElementById('instruction').value = 'a long one'; document.getElementById('go').click()")
        page.until("document.querySelectorAll('#responses td').length === 9")
        page.run("document.getElementById('stop').click()")
        page.until("document.getElementById('result').textContent === 'stopped'")
        page.until("document.getElementById('running-count').textContent === '0'")


def test_a_keyed_server_asks_for_its_key(tmp_path: Path) -> None:
    with serving(paced, by_key) as server, browser(tmp_path / "profile") as page:
        page.open(server.root + "/")
        page.until("!document.getElementById('key-form').hidden")
        assert page.run("getComputedStyle(document.querySelector('main')).display") == "none"
        page.run("document.getElementById('key').value = 'vv_wrong'")
        page.run("document.querySelector('#key-form button').click()")
        page.until("document.getElementById('state').textContent === 'the API key is not valid'")
        page.run(f"document.getElementById('key').value = '{KEY}'")
        page.run("document.querySelector('#key-form button').click()")
        page.until("document.getElementById('state').textContent === 'live'")
        assert page.run("document.getElementById('key-form').hidden")
        assert page.run("document.getElementById('model').value") == "paced"
        page.run("document.getElementById('forget').click()")
        page.until("document.readyState === 'complete' && !document.getElementById('key-form').hidden")


def test_nothing_of_the_overview_comes_without_a_key() -> None:
    with serving(paced, by_key) as server:
        for headers, status in (({}, 401), ({"authorization": "Bearer vv_no"}, 401), ({"x-api-key": KEY}, 200)):
            assert httpx2.get(server.root + "/console/overview", headers=headers).status_code == status
        answer = httpx2.get(server.root + "/")
        policy = answer.headers["content-security-policy"]
        assert answer.status_code == 200 and "default-src 'none'" in policy and "unsafe" not in policy
        assert httpx2.get(server.root + "/console/..%2Fapp.py").status_code == 404


def ledger(folder: Path) -> LocalGateway:
    """A gateway with meters and a ledger of 30 responses: 20 of today, 10 of five days ago."""
    engine = open_database(f"sqlite:///{folder}/service.db")
    books = Ledger(engine, Writer(engine))
    for number in range(30):
        ended = time.time() - (5 * 86400 if number < 10 else 0)
        books.record(
            Entry(
                response=f"resp_{number}", principal=("ann", "bob")[number % 2], model="paced", family="paced",
                tier="default", backend="paced", status="completed", created=ended - 1, ended=ended, cost=1500,
                usage=Usage(input_tokens=1000, output_tokens=50), ttft_ms=40.0,
            )
        )  # fmt: skip
    plan = Plan("small", windows=[Window("requests", 3600, 4)])
    tiers = TierTable(TierFile(default_plan="small", plans=[plan], tiers=BUILT_IN))
    gateway = paced()
    return LocalGateway(gateway.backends, sealer=gateway.sealer, tiers=tiers, ledger=books)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_meters_and_the_ledger_are_shown(tmp_path: Path, scheme: str, width: int) -> None:
    with serving(lambda: ledger(tmp_path)) as server, browser(tmp_path / "profile") as page:
        page.look(scheme, width, 1000)
        page.open(server.root + "/")
        page.until("document.querySelectorAll('#ledger-principals tr').length === 2")
        client = OpenAI(base_url=server.base_url, api_key="none")
        for _ in range(3):
            client.responses.create(model="paced", input="x", max_output_tokens=2)
        page.until("document.querySelectorAll('#meters td')[3].textContent === '3'")
        assert page.run("document.querySelectorAll('#meters td')[1].textContent") == "requests/1h/paced"
        assert page.run("document.querySelector('#meters progress').value") == 0.75

        def models() -> list[str]:
            cells: list[str] = page.run(
                "[...document.querySelectorAll('#ledger-models td')].map(cell => cell.textContent)"
            )
            return cells

        assert models() == ["paced", "20", "20,000", "0", "1,000", "0.0300"]
        page.run("document.getElementById('span-week').click()")
        assert models() == ["paced", "30", "30,000", "0", "1,500", "0.0450"]
        assert page.run("document.querySelectorAll('#latest tr').length") == 20
        # Nothing but the tables scrolls sideways.
        assert page.run("document.documentElement.scrollWidth") <= width
        ground = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) > 380) == (scheme == "light")
        if folder := os.environ.get("VIVACE_SCREENSHOTS"):
            page.screenshot(Path(folder) / f"console-{scheme}-{width}.png")
        assert page.faults == []


def test_the_diff_of_a_long_file_is_whole_and_right(tmp_path: Path) -> None:
    """Lines beyond the window of the comparison are compared too."""
    with serving(paced) as server, browser(tmp_path / "profile") as page:
        page.open(server.root + "/")
        page.until("document.getElementById('state').textContent === 'live'")
        found = page.run(
            """(() => {
              const old = Array.from({length: 5000}, (_, n) => `line ${n % 700}`);
              const now = [...old.slice(0, 10), "new", ...old.slice(12, 4000), ...old.slice(4900), "end"];
              const marks = difference(old, now);
              const kept = marks.filter(([mark]) => mark !== "+").map(([, line]) => line);
              const made = marks.filter(([mark]) => mark !== "-").map(([, line]) => line);
              const changed = marks.filter(([mark]) => mark !== " ").length;
              return [kept.join() === old.join(), made.join() === now.join(), changed];
            })()"""
        )
        assert found[:2] == [True, True] and found[2] < 3000
