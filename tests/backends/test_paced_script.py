"""Scripts: which rule answers, and what is said of a wrong one."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.backends.asking import SHELL, TEAM, job, read, text_of
from tests.backends.test_paced import FAST
from vivace.backends.base import Job
from vivace.backends.configured import backend_from_config
from vivace.backends.paced import PacedBackend
from vivace.backends.paced_script import Chooser, load_script, script_of
from vivace.errors import UsageError

ASKED = [{"role": "user", "content": "list the files"}]
CALLED = [*ASKED, {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}]
OUTPUT = [*CALLED, {"type": "function_call_output", "call_id": "c", "output": "a.py\nb.py"}]


def chosen(when: dict[str, Any], asked: Job) -> bool:
    script = script_of({"rules": [{"name": "it", "when": when, "steps": [{"text": "x"}]}]})
    return Chooser(script).choose(asked)[0].name == "it"


@pytest.mark.parametrize(
    ("when", "given", "fits"),
    [
        ({}, ASKED, True),
        ({"user": "^list"}, ASKED, True),
        ({"user": "^files"}, ASKED, False),
        ({"user": "list"}, OUTPUT, False),
        ({"said": "list"}, OUTPUT, True),
        ({"output": r"(?m)^b\.py"}, OUTPUT, True),
        ({"output": "."}, [*OUTPUT, {"role": "assistant", "content": "two"}, {"role": "user", "content": "ok"}], False),
        ({"turn": 1}, ASKED, True),
        ({"turn": 2}, OUTPUT, True),
        ({"turn": [1, 3]}, OUTPUT, False),
        ({"model": "^m$"}, ASKED, True),
        ({"tool": "shell"}, ASKED, True),
        ({"tool": "spawn"}, ASKED, True),
        ({"tool": "team__spawn"}, ASKED, True),
        ({"tool": "other"}, ASKED, False),
        ({"item": "compaction_trigger"}, [*OUTPUT, {"type": "compaction_trigger"}], True),
        ({"item": "new_thing"}, [*OUTPUT, {"type": "new_thing"}], True),
        ({"item": "compaction_trigger"}, OUTPUT, False),
        ({"prefill_only": True}, ASKED, False),
        ({"user": "list", "turn": 2}, ASKED, False),
    ],
)
def test_when_a_rule_fits(when: dict[str, Any], given: list[Any], fits: bool) -> None:
    assert chosen(when, job(given, [SHELL, TEAM])) is fits


def test_rules_for_warming_up_are_rules_of_their_own() -> None:
    warming = job(ASKED, prefill_only=True)
    assert chosen({"prefill_only": True}, warming)
    assert not chosen({}, warming)


def test_used_up_rules_fall_through() -> None:
    chooser = Chooser(
        script_of({"rules": [{"name": "a", "times": 2, "steps": []}, {"name": "b", "times": 1, "steps": []}]})
    )
    assert [chooser.choose(job())[0].name for _ in range(4)] == ["a", "a", "b", "default"]


def test_groups() -> None:
    async def main() -> None:
        rules = [
            {
                "when": {"user": r"say (?P<what>\w+) and (\w+)", "model": "(.)"},
                "expand": True,
                "steps": [
                    {"group": "what"},
                    {"text": " ${2}! $1 ${what}"},
                    {"call": "shell", "arguments": {"cmd": ["echo", "${what}"]}},
                ],
            }
        ]
        backend = PacedBackend("paced", script_of({"rules": rules}), FAST)
        pieces, _ = await read(backend.start(job("say yes and no", [SHELL])))
        assert text_of(pieces) == "yes no! $1 yes"
        assert '["echo","yes"]' in str(pieces)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"steps": [{"txt": "x"}]}, r"rules\[0\].steps\[0\] has an unknown key 'txt'.\nDid you mean text"),
        ({"steps": [], "when": {"usr": "x"}}, r"rules\[0\].when has an unknown key 'usr'.\nDid you mean user"),
        ({"steps": [], "tims": 1}, r"unknown key 'tims'.\nDid you mean times"),
        ({"steps": [{"text": 3}]}, r"Expected `str"),
        ({}, "steps"),
        ({"steps": [{"text": "a", "delay": 1}]}, "does text and delay; it takes exactly one"),
        ({"steps": [{"pause": 1}]}, "does nothing"),
        ({"steps": [{"delay": -1}]}, "it takes 0 or more"),
        ({"steps": [{"text": "a", "arguments": {}}]}, "'arguments' goes with call"),
        ({"steps": [{"call": "a", "arguments": {}, "input": "x"}]}, "takes one of them"),
        ({"steps": [], "when": {"user": "("}}, r"when.user is no regular expression"),
        ({"steps": [{"group": 1}], "when": {"user": "x"}}, "wants group '1'"),
        ({"steps": [{"text": "${name}"}], "expand": True}, "wants group 'name'"),
        ({"steps": [], "times": 0}, "takes 1 or more"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_wrong_script(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        script_of({"rules": [rule]}, "a.toml")
    assert str(raised.value).startswith("a.toml: ")
    assert re.search(said, str(raised.value))


def test_files(tmp_path: Path) -> None:
    toml = tmp_path / "a.toml"
    toml.write_text('[[rules]]\nname = "a"\nwhen = { user = "x" }\nsteps = [{ text = "é" }, { delay = 1 }]\n', "utf-8")
    as_json = tmp_path / "a.json"
    as_json.write_text(
        '{"rules": [{"name": "a", "when": {"user": "x"}, "steps": [{"text": "é"}, {"delay": 1}]}]}', "utf-8"
    )
    assert load_script(toml) == load_script(as_json)
    for name, data in (("b.toml", b"rules = ["), ("b.json", b"{"), ("c.toml", b"\xff")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=name):
            load_script(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        load_script(tmp_path / "none.toml")


def test_every_script_of_the_page_is_a_script() -> None:
    page = (Path(__file__).parents[2] / "docs" / "paced.md").read_text("utf-8")
    import tomllib

    found = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[[rules]]" in block]
    assert found
    for block in found:
        script_of(tomllib.loads(block))


def test_the_page_names_every_key() -> None:
    from vivace.backends.paced_script import Rule, Step, When

    page = (Path(__file__).parents[2] / "docs" / "paced.md").read_text("utf-8")
    for kind in (Rule, Step, When):
        for name in kind.__struct_fields__:
            assert f"`{name}`" in page, f"docs/paced.md does not tell of {name}"


def test_a_backend_out_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[rules]]\nsteps = [{ text = "scripted" }]\n', "utf-8")

    async def main() -> None:
        table = {"kind": "paced", "tok_s": 1e6, "ttft_ms": 0, "window": 99, "script": "s.toml"}
        backend = backend_from_config(table, "fake", folder=tmp_path)
        card = await backend.open(lambda stage, share: None)
        assert (card.name, card.context_window) == ("fake", 99)
        pieces, _ = await read(backend.start(job()))
        assert text_of(pieces) == "scripted"

    asyncio.run(main())
