"""What the model is told before the conversation: short, since every token of it is prefilled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vivace.agent.tools.clip import Count
from vivace.model_size import SMALL, billions
from vivace.protocol.contracts import ModelCard

GUIDES = ("AGENTS.md", "CLAUDE.md")
"""Files with the project's own rules; of one folder the first that is there counts."""
MAX_GUIDE = 12_000
"""Characters of all guides together that are shown; the nearest folders count first."""

GUIDE_TOKENS = 1500
"""Of them in a request for an edit, and at most an eighth of the window."""

DEEP = """\
You work in the folder of a project, through tools, until the user's task is done.
- Look before you change: read what you edit. Do not read again what you have seen.
- Make the smallest change that does it. Leave alone what nobody asked about.
- After a change run the check that shows it works, when there is one.
- When a call fails, read why and do something else.
- Finish with a few sentences: what you changed, what you checked, what is left. Say only what really happened."""

READ_ONLY = """\
Only reading is allowed here: edits, and commands that may change something, are refused. Do not try them. Look, and
then say in words what you found and what is to be changed, where and how."""

TALK = """\
You answer a programmer's question about a project. Be short and concrete. Do not write whole files."""

PLAN = """\
You plan work on a project that somebody else then does with tools. Answer with the steps only: at most eight, in their
order, each one sentence that says what to find out or to change and in which file; the last is how to check it. Write
no code."""

REVIEW = """\
You review a change of a project. Say whether it does the task, correctly, and nothing beside it. A finding is a fault
that has to be mended: what is wrong, in which file, and why; matters of taste are none. Answer ok with no findings when
there is none."""

SUMMARY = """\
The conversation is getting too long for you and will be replaced by your summary of it. Write for yourself, in at most
{words} words: what the user wants (with every condition that was given), what was found out, what was decided and why,
what is done, and the next step. No greetings, no code beyond single lines, no tool calls."""

JUDGE = """\
You compare changes of the same file that were made for one instruction. Decide which does what was asked, correctly,
and changes least beside it. Answer with its number and nothing else."""

CHECK = """\
A quick answer to the task was made and written to the files; the diff is below. Check it: look at the code and run
what shows whether it works. If it is right, say so in a sentence and change nothing. If not, put it right."""


def instructions(base: str, root: Path, folders: Iterable[str] = ()) -> str:
    """``base`` with the rules of the project: those at the top, and those of the ``folders`` that are worked in."""
    return "\n\n".join([base, *_told(guides(root, folders))])


def edit_rules(root: Path, path: str, card: ModelCard, count: Count) -> str:
    """The rules of the project for an edit of the file ``path``; empty for none.

    A model under 3B is told none: what is put before its file is what it loses the instruction over.
    """
    size = billions(card.name)
    if size is not None and size < SMALL:
        return ""
    room = min(GUIDE_TOKENS, card.context_window // 8)
    most = room * 4
    while most > 100:
        text = "\n\n".join(_told(guides(root, [path.rpartition("/")[0]], most)))
        if (tokens := count(text)) <= room:
            return text
        most = min(most - 100, most * room // tokens)
    return ""


def guides(root: Path, folders: Iterable[str] = (), most: int = MAX_GUIDE) -> list[tuple[str, str]]:
    """Name and text of each guide, the outermost first. What does not fit is cut at the end, and that is said."""
    wanted = [""]
    for folder in sorted(set(folders)):
        parts = [part for part in folder.split("/") if part not in ("", ".", "..")]
        wanted += ["/".join(parts[: n + 1]) for n in range(len(parts))]
    found = []
    room = most
    for folder in reversed(list(dict.fromkeys(wanted))):
        for guide in GUIDES:
            name = f"{folder}/{guide}" if folder else guide
            text = _text(root, name)
            if text and room > 0:
                cut = text if len(text) <= room else text[:room].rsplit("\n", 1)[0] + "\n[... cut]"
                found.append((name, cut))
                room -= len(cut)
            if text:
                break
    return found[::-1]


def _told(found: Sequence[tuple[str, str]]) -> list[str]:
    return [f"Rules of the project ({name}):\n{text}" for name, text in found]


def _text(root: Path, name: str) -> str:
    path = root / name
    try:
        real = path.resolve(strict=True)
        if not real.is_file() or not real.is_relative_to(root):
            return ""
        return real.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, RuntimeError):
        return ""


def shown_files(files: Sequence[tuple[str, str]]) -> str:
    """Files as they are put before a question."""
    return "\n\n".join(f"{name}:\n```\n{text.rstrip()}\n```" for name, text in files)
