"""Words for words: what is a question, and that none of them ends in an edit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, play, say, stage, whole
from vivace.agent.turns.events import Applied, Noted, Proposed, Said
from vivace.agent.turns.questions import is_question
from vivace.backends.paced_script import Step

QUESTIONS = """\
Could you tell me about f?
why is this slow?
Explain the loop
the loop is slow, isn't it?
Does it return None? If so, fix it.
What does parse() do?
What should I rename x to?
Can you explain how to add a test?
Could you please tell me why this returns 0?
Would it be better to use a dict?
How do I add a test?
How would you refactor this?
Is there a bug in parse?
show me the usages of f
Describe what parse does
Where is the config read
Which files use Path?
When is main called
Do you think we should use a dict?
f should return 3, right?
Hi, what does start_up do?
What does it do? Use simple words.
Explain what it does. Make it short.
Any idea why it hangs
I don't understand why f returns None
review app.py
find out where x is set
Would you mind explaining the cache?
Should this raise, or return None?
list the functions in app.py
Is f used anywhere? I want to remove it.
Summarize app.py in a few sentences
Who calls Window.close?
Can this be simplified?
Why not use a set here?
How can I sort the list by name?
What happens when x is None
Was macht f?
compare a.py and b.py
tell me what to fix first
"""
REQUESTS = """\
Can you add a test?
add a loop
When the list is empty, return None
Do the same in b.py
Do not change the API; add a flag to f
However, rename it
Should be called g
Why is it slow? Fix it.
Explain the loop, then simplify it
Explain the algorithm in a comment above it
Describe f in its docstring
Would you mind adding a docstring to f?
Could we rename x to y?
please fix app.py
use a dict instead?
Tell the user when the file is missing
Is there a test for f? Add one if not.
rename x to y in app.py
Will you please make f faster?
show the version in the header
In app.py, f returns 3. It should return 4.
Hey, can you quickly remove the print?
list the imports alphabetically
The name is wrong: rename it
make the tests pass in app.py
What we need is a retry. Then add a flag.
"""


@pytest.mark.parametrize("text", QUESTIONS.splitlines())
def test_these_ask_for_words(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize("text", REQUESTS.splitlines())
def test_these_ask_for_an_edit(text: str) -> None:
    assert not is_question(text)


def test_lines_are_sentences() -> None:
    assert not is_question("Why is it slow?\nFix it.")
    assert is_question("This fails:\n\n    f(1)\n\nWhy?") is False  # no form tells it; the modes do not guess
    assert not is_question("")


def project(root: Path) -> Path:
    root.mkdir()
    (root / "window.py").write_text("class Window:\n    def close(self):\n        return 41\n")
    (root / "other.py").write_text("from window import Window\n\n\ndef unrelated():\n    return 7\n")
    (root / "README.md").write_text("A small thing.\n")
    return root


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("deep", "What does Window.close give back in window.py?"),
        ("deep", "Where does Window close?"),
        ("auto", "Where does Window close?"),
        ("auto", "Why does closing a Window fail?"),
        ("fast", "What does Window.close give back in window.py?"),
    ],
)
def test_a_weak_model_answers_a_question_and_edits_nothing(tmp_path: Path, mode: str, text: str) -> None:
    root = project(tmp_path / "work")
    before = {path.name: path.read_bytes() for path in root.iterdir()}

    def act(seen: Seen) -> list[Step]:
        assert not seen.tools
        return [say("41, see window.py.") if "return 41" in seen.text else whole("print('an edit')\n")]

    async def work() -> None:
        async with stage(tmp_path, act, mode=mode, weak=True) as scene:
            ended = await scene.turn(text)
            assert ended.status == "done" and not ended.changed, ended
            assert "".join(event.text for event in scene.of(Said)) == "41, see window.py."
            assert not scene.of(Applied) and not scene.of(Proposed)

    play(work)
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before


def test_files_for_a_question_are_looked_up_and_fit(tmp_path: Path) -> None:
    root = project(tmp_path / "work")
    (root / "huge.py").write_text("def enormous():\n" + "    x = 'nothing but filling'\n" * 9000)

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], weak=True) as scene:
            await scene.turn("Why does Window.close return a number?")
            assert any(event.text.startswith("Looked up: window.py") for event in scene.of(Noted))
            assert "return 41" in scene.seen[-1].text and "return 7" not in scene.seen[-1].text
            assert (await scene.turn("What does enormous do?")).status == "done"
            assert "nothing but filling" not in scene.seen[-1].text
            assert "Where things are" in scene.seen[-1].text  # instead of it
            await scene.turn("What is a monad?")
            assert len(scene.seen) == 3 and not any("no_file" in event.text for event in scene.of(Noted))

    play(work)


def test_what_a_weak_model_is_to_edit_is_looked_up_or_it_says_that_it_did_nothing(tmp_path: Path) -> None:
    """It prints a call as text, and success is shown: opencode#7030."""
    root = project(tmp_path / "work")
    changed = (root / "window.py").read_text().replace("41", "42")

    def act(seen: Seen) -> list[Step]:
        if seen.tools:
            return [say('{"name": "edit", "arguments": {"path": "window.py"}}')]
        return [whole(changed)]

    async def work() -> None:
        async with stage(tmp_path, act, weak=True, candidates=1) as scene:
            ended = await scene.turn("Let Window give 42 when it is closed")
            assert (ended.status, ended.changed) == ("done", ("window.py",)), ended
            ended = await scene.turn("mend whatever is broken")
            assert ended.status == "unchanged" and "used no tool" in ended.reason

    play(work)
    assert (root / "window.py").read_text() == changed


def test_a_strong_model_looks_for_itself(tmp_path: Path) -> None:
    project(tmp_path / "work")

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("41.")], weak=False) as scene:
            assert (await scene.turn("What does Window.close do?")).status == "done"
            assert "read" in scene.seen[0].tools

    play(work)
