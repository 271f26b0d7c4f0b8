"""The reply parser: the same for any chunking, and whole only with its closing fence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.reply import Reply, ReplyParser, fence_for

PIECE = st.sampled_from(["```", "```python", "````", "~~~", "\n", "\n", "x", "    ", "\r\n", "`", "é"])


def parse(text: str, fence: str = "```", size: int = 10_000, *, complete: bool = True) -> tuple[Reply, list[str]]:
    parser = ReplyParser(fence)
    streamed: list[str] = []
    for at in range(0, len(text), size):
        streamed += parser.feed(text[at : at + size])
    return parser.finish(complete=complete), streamed


@given(st.lists(PIECE, max_size=25), st.integers(1, 9), st.sampled_from(["```", "````"]))
def test_chunks_do_not_matter(pieces: list[str], size: int, fence: str) -> None:
    text = "".join(pieces)
    whole, _ = parse(text, fence)
    cut, streamed = parse(text, fence, size)
    assert cut == whole
    code = whole.code.split("\n")[:-1]
    assert streamed == code[: len(streamed)]


@given(st.lists(st.sampled_from(["```", "`", "````", "\n", "\n", " ", "\t", "x", "\u2028", "\x0b"]), max_size=25))
def test_the_fence_that_is_asked_for_holds_any_text(pieces: list[str]) -> None:
    text = "".join(pieces) + "\n"
    fence = fence_for(text)
    assert parse(f"{fence}python\n{text}{fence}", fence)[0] == Reply("closed", text)


@pytest.mark.parametrize(
    ("text", "state", "code"),
    [
        ("```python\na\n```", "closed", "a\n"),
        ("Here you are:\n\n```\na\n\nb\n```\nDone.", "closed", "a\n\nb\n"),
        ("~~~js\na\n```\nb\n~~~", "closed", "a\n```\nb\n"),
        ("````md\n```\nx\n```\n````", "closed", "```\nx\n```\n"),
        ("```python\r\na\r\n```\r\n", "closed", "a\n"),
        ("```python\n```", "closed", ""),
        ('```python\ndef f():\n    """\n    ```\n    x\n    ```\n    """\n```', "closed", None),
        ("```python\na\nb", "cut", "a\nb\n"),
        ("just talk", "none", ""),
        ("", "none", ""),
    ],
)
def test_fences(text: str, state: str, code: str | None) -> None:
    reply, _ = parse(text)
    assert reply.state == state
    assert code is None or reply.code == code


def test_a_longer_fence_is_asked_for_when_the_file_holds_fences() -> None:
    assert fence_for("x\n") == "```"
    assert fence_for("a\n```py\nx\n```\n") == "````"
    assert fence_for("  `````\n") == "``````"


def test_a_short_fence_around_fences_ends_at_the_last_one_and_only_at_the_end() -> None:
    inner = "# T\n```py\nx\n```\nend\n"
    assert parse(f"```md\n{inner}```", "````")[0] == Reply("closed", inner)
    assert parse(f"```md\n{inner}```\n\n", "````")[0] == Reply("closed", inner)
    assert parse(f"```md\n{inner}", "````")[0].state == "cut"
    assert parse(f"```md\n{inner}```\nI changed it.", "````")[0] == Reply("closed", inner)


def test_talk_behind_a_short_fence_is_told_from_a_block_inside_the_code() -> None:
    def state(text: str) -> str:
        parser = ReplyParser("````", "# T\n```\nx\n```\nend\n")
        parser.feed(text)
        return parser.finish().state

    whole = "# T\n```\nx\n```\nend\n"
    assert state(f"```md\n{whole}```\n\nI changed it.") == "closed"
    assert state(f"```md\n{whole}```\n\nx\n") == "cut", "a block was opened that goes on as the file does"
    assert state("```md\n# T\n```\nx\n```\nand more") == "cut", "the block inside ended, the code did not"
    assert state(f"```md\n{whole}```\nSee:\n```js\ny\n") == "closed"


def test_a_limit_is_never_taken_for_an_end() -> None:
    # The inner fence looks like the end; the tail may be the beginning of a longer line.
    assert parse("```md\n# T\n```py\nx\n```", "````", complete=False)[0].state == "cut"
    assert parse("```python\na\n```", complete=False)[0].state == "cut"
    assert parse("```python\na\n```\nAnd now", complete=False)[0].state == "closed"
