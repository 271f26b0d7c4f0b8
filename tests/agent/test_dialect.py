"""The questions: what stands where, and that a second one begins as the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vivace.agent.definitions import definitions
from vivace.agent.dialect import Ask
from vivace.agent.workspace import SourceFile

CODE = "import os\n\n\ndef f(x):\n    return os.path.join(x)\n"


def ask(text: str, instruction: str = " do it\n") -> Ask:
    return Ask(SourceFile(Path("a.py"), "a.py", text.encode()), instruction)


def test_the_file_comes_first_and_the_careful_question_ends_with_the_form() -> None:
    assert ask(CODE).prompt == (
        f"a.py:\n```python\n{CODE}```\n\ndo it\n\nReply with the whole updated file in one ```python block."
    )


def test_the_free_question_ends_with_the_instruction() -> None:
    careful = ask(CODE)
    free = replace(careful, manner="free")
    assert free.prompt.endswith("\n\ndo it") and careful.prompt.startswith(free.prompt)
    assert free.request("m").instructions != careful.request("m").instructions
    assert free.request("m").prediction == careful.request("m").prediction


def test_a_file_with_fences_is_shown_in_a_longer_one_and_both_manners_say_so() -> None:
    careful = ask('"""\n```\nx\n```\n"""\n')
    assert careful.prompt.endswith("in one ````python block, closed by ````.")
    assert replace(careful, manner="free").prompt.endswith("Use one ````python block, closed by ````.")


def test_a_region_is_named_with_what_it_leans_on() -> None:
    whole = ask(CODE)
    (f,) = definitions("python", CODE) or []
    part = replace(whole, region=f)
    assert part.prompt.startswith("`f` of a.py (elsewhere in the file: `import os`):\n```python\ndef f(x):")
    assert part.prompt.endswith("Reply with the whole updated `f` in one ```python block.")
