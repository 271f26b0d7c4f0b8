"""What an edit must not do, whoever asks: multiply lines, leave code out, break the syntax. And comments that it drops.

An edit by search and replace says what it removes, so unlike a rewritten file (:mod:`vivace.agent.guards`) it is not
suspected of forgetting.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence

from vivace.agent.applier import Patch
from vivace.agent.guards import elided
from vivace.agent.languages import ANGLE_COMMENTS, HASH_COMMENTS, SLASH_COMMENTS, STAR_COMMENTS, language_of
from vivace.agent.linediff import Block
from vivace.agent.syntax import compare

GROWTH = 4
"""A file over ``LARGE`` bytes may not become more than so many times as long by one call."""
LARGE = 64 * 1024


def damage(patch: Patch) -> str:
    """Why the patch must not be written; empty when nothing speaks against it."""
    return elided(patch) or multiplied(patch) or doubled(patch) or broken(patch)


def multiplied(patch: Patch) -> str:
    """One line over and over, or a file that explodes."""
    before, after = len(patch.source.raw), len(patch.data)
    if after > LARGE and after > GROWTH * max(before, 1) and before:
        return f"the file would grow from {before:,} to {after:,} bytes"
    more = Counter(line.strip() for line in patch.new if len(line.strip()) >= 8)
    more.subtract(line.strip() for line in patch.old if len(line.strip()) >= 8)
    growth = max(1, len(patch.new) - len(patch.old))
    for line, times in more.most_common(1):
        if times > 20 and times > 0.3 * growth:
            return f"it would repeat a line {times} times ({line[:60]!r})"
    return ""


def doubled(patch: Patch) -> str:
    """Lines that are put right beside the same lines: an edit that was made already, made again."""
    comment = comment_of(language_of(patch.source.name, patch.source.text))
    for block in patch.blocks:
        fresh = [line.strip() for line in patch.new[block.j1 : block.j2]]
        if block.i1 != block.i2 or not _weighty(fresh, comment):
            continue
        before = [line.strip() for line in patch.new[max(0, block.j1 - len(fresh)) : block.j1]]
        behind = [line.strip() for line in patch.new[block.j2 : block.j2 + len(fresh)]]
        if fresh in (before, behind):
            return f"the same lines are there already, at line {block.j1 + 1} ({fresh[0][:60]!r})"
    return ""


def broken(patch: Patch) -> str:
    """The syntax was fine and is not any more."""
    fault = compare(patch.source.name, patch.source.text, patch.text).fault
    return f"the result would not parse ({fault})" if fault else ""


def lost_comments(patch: Patch) -> list[str]:
    """Comments that are gone although code beside them stays; for the user's eyes."""
    language = language_of(patch.source.name, patch.source.text)
    if not language:
        return []
    comment = comment_of(language)
    kept = Counter(line.strip() for line in patch.new)
    lost = []
    for block in patch.blocks:
        for line in patch.old[block.i1 : block.i2]:
            bare = line.strip()
            if comment.match(line) and not kept[bare] and _code_stays(patch, block, comment):
                lost.append(bare)
    return lost


@functools.cache
def comment_of(language: str) -> re.Pattern[str]:
    """Matches a line that is a comment and says something. Of an unknown language: by any mark there is."""
    marks = []
    if language in HASH_COMMENTS or not language:
        marks.append(r"#(?![!\[])" if language == "php" else "#(?!!)")  # "#[" opens an attribute of PHP
    if language in SLASH_COMMENTS or not language:
        marks.append("//")
    if language in STAR_COMMENTS or not language:
        marks += [r"/\*", r"\*(?=\s|/)"]
    if language == "sql" or not language:
        marks.append(r"--\s")
    if language in ANGLE_COMMENTS or not language:
        marks.append("<!--")
    return re.compile(rf"^\s*(?:{'|'.join(marks)})\s*\S" if marks else r"(?!)")


def _code_stays(patch: Patch, block: Block, comment: re.Pattern[str]) -> bool:
    """Something was put in place of what was taken away: the comment was not removed with its code."""
    return any(line.strip() and not comment.match(line) for line in patch.new[block.j1 : block.j2]) or all(
        not line.strip() or comment.match(line) for line in patch.old[block.i1 : block.i2]
    )


def _weighty(lines: Sequence[str], comment: re.Pattern[str]) -> bool:
    """More than a closing brace or a blank line: three lines of substance, or a comment."""
    solid = [line for line in lines if len(line) >= 8]
    return len(solid) >= 3 or any(comment.match(line) and len(line) >= 12 for line in solid)
