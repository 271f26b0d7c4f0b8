"""The console in a real browser: live figures, an edit whose diff grows, keys, and nothing from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from openai import OpenAI

from tests.server.browser import browser
from tests.server.serving import KEY, by_key, paced, serving
from vivace.backends.paced_script import Rule, Script, Step, When

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
        page.until("document.querySelectorAll('#responses td').length === 7")
        assert page.run("document.querySelector('#responses td').textContent").startswith("resp_")
        assert page.run("document.getElementById('running-count').textContent") == "1"
        page.until("Number(document.getElementById('rate').textContent.replaceAll(',', '')) > 0")

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
        page.until("document.querySelectorAll('#responses td').length === 7")
        page.run("document.getElementById('stop').click()")
        page.until("document.getElementById('result').textContent === 'stopped'")
        page.until("document.getElementById('running-count').textContent === '0'")


def test_a_keyed_server_asks_for_its_key(tmp_path: Path) -> None:
    with serving(paced, by_key) as server, browser(tmp_path / "profile") as page:
        page.open(server.root + "/")
        page.until("!document.getElementById('key-form').hidden")
        page.run(f"document.getElementById('key').value = '{KEY}'")
        page.run("document.querySelector('#key-form button').click()")
        page.until("document.getElementById('state').textContent === 'live'")
        assert page.run("document.getElementById('key-form').hidden")
        assert page.run("document.getElementById('model').value") == "paced"
