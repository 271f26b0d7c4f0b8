"""A pure rename: what an instruction names, and of an answer to it only what it asks for.

Small models that rewrite a file for a rename also rename its neighbours, swap branches, drop blank lines and lose the
end of it. Whatever they do, a rename is the old text with other names in it: so that is what is taken from the answer,
and the rest is put back, and told. An instruction that asks for anything beside names is none of this module's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from vivace.agent.languages import BY_SUFFIX, language_of
from vivace.agent.linediff import diff
from vivace.agent.workspace import split_lines

_NAME = r"[`'\"“‘]?((?:--|[.#@$])?[\w$]+(?:(?:[.-]|::)[\w$]+)*)(?:\(\))?[`'\"”’]?"
_KIND = (
    r"(?:functions?|methods?|class(?:es)?|variables?|arguments?|parameters?|constants?|modules?|files?|fields?"
    r"|attributes?|propert(?:y|ies)|keys?|names?|types?|identifiers?|symbols?|structs?|enums?|interfaces?|imports?"
    r"|alias(?:es)?|labels?|columns?|tables?|services?|options?|flags?|settings?|tests?|sections?|selectors?|traits?"
    r"|macros?|packages?|namespaces?|commands?|members?|locals?|globals?)"
)
_LEAD = r"(?:[a-z]+\s+){0,5}?"
_OF = rf"(?:\s+(?:of|in|inside|within|from)\s+(?:the\s+)?(?:{_KIND}\s+)?[`'\"\w.:]+(?:\s+{_KIND})?)?"
_BECOMES = rf"{_NAME}(?:\s+{_KIND})?{_OF}\s*(?:\b(?:to|into|as)\b|->|=>|→)\s*(?:be\s+)?{_NAME}"
_PAIR = _LEAD + _BECOMES
_MORE = rf"(?:(?:the|{_KIND})\s+){{0,2}}{_BECOMES}"
_ASKS = (
    re.compile(
        rf"(?:please\s+)?(?:renam(?:e|ing)|chang(?:e|ing)\s+the\s+names?\s+(?:of|from))\s+"
        rf"(?P<pairs>{_PAIR}(?:(?:,|\s+and|,\s*and)\s+(?:rename\s+)?{_MORE})*)(?P<tail>(?:[\s,(].*)?)",
        re.IGNORECASE | re.DOTALL,
    ),
    re.compile(
        rf"(?P<pairs>{_LEAD}{_NAME}(?:\s+{_KIND})?\s+(?:should|shall|must|has\s+to)\s+be\s+"
        rf"(?:called|named|renamed(?:\s+(?:to|into|as))?)\s+{_NAME})(?P<tail>(?:[\s,(].*)?)",
        re.IGNORECASE | re.DOTALL,
    ),
)
_ONE = (
    re.compile(_PAIR, re.IGNORECASE),
    re.compile(
        rf"{_LEAD}{_NAME}(?:\s+{_KIND})?\s+(?:should|shall|must|has\s+to)\s+be\s+"
        rf"(?:called|named|renamed(?:\s+(?:to|into|as))?)\s+{_NAME}",
        re.IGNORECASE,
    ),
)
_BESIDE = re.compile(
    r"everywhere|throughout|across|in|within|inside|including|wherever|where|and|or|of|the|a|all|any|each|every|its|it"
    r"|them|this|that|these|is|are|was|were|used|uses?|usages?|callers?|call|calls|sites?|references?|occurrences?"
    r"|mentions?|instances?|appears?|occurs?|files?|modules?|code|whole|entire|project|places?|updat(?:e|ing)|adjust"
    r"|chang(?:e|ing)|accordingly|too|also|as|well|both|definitions?|declarations?|imports?|please|do|not|don't|nothing"
    r"|anything|everything|else|leav(?:e|ing)|keep|other|others|rest|lines?|unchanged|they|only|just|consistently|to|match|new"
    r"|name|names|so|with|from|for|at|instead",
    re.IGNORECASE,
)
"""What may stand beside a pure rename: where it holds, and that nothing else is meant."""
_WHERE = re.compile(rf"in|of|within|inside|including|across|for|{_KIND}", re.IGNORECASE)
_ARTICLE = re.compile(r"the|a|all|any|its|this|that|whole|entire", re.IGNORECASE)
_NO_NAME = re.compile(
    rf"{_KIND}|callers?|calls?|uses?|usages?|references?|occurrences?|it|its|them|this|that|these|those|everything|all|one|ones|something|anything|the|(?:snake|kebab)[_-]?"
    r"case|(?:camel|pascal|lower|upper)[_-]?case|lower|upper|better|be|match|follow|english|plural|singular|first|second",
    re.IGNORECASE,
)
"""Words that are no names unless they stand in quotes."""
_SENTENCE = re.compile(r"[.!;](?:\s+|$)|\n+")
_WORD = re.compile(r"[^\s,()]+")
_CODE_LIKE = re.compile(r"[_\d$.:-]|[a-z][A-Z]|^[A-Z]")
_DASHED = {"css", "html", "yaml", "toml", "markdown"}
_DOLLARS = {"javascript", "typescript", "tsx", "java"}


def renames(instruction: str) -> dict[str, str]:
    """Old names -> new ones, when the instruction asks for nothing else; else empty."""
    found: dict[str, str] = {}
    for sentence in filter(None, (part.strip() for part in _SENTENCE.split(instruction))):
        asked = next(((n, match) for n, ask in enumerate(_ASKS) if (match := ask.fullmatch(sentence))), None)
        if asked is None:
            if not _says_no_more(sentence):
                return {}
            continue
        form, match = asked
        if not _says_no_more(match["tail"]):
            return {}
        for pair in _ONE[form].finditer(match["pairs"]):
            quoted = "`" in pair[0] or "'" in pair[0] or '"' in pair[0]
            old, new = _bare(pair[1], pair[2])
            if re.match(rf"an?\s+{_KIND}\b", pair[0], re.IGNORECASE):
                return {}
            if not quoted and (_NO_NAME.fullmatch(old) or _NO_NAME.fullmatch(new) or _NO_NAME.fullmatch(pair[2])):
                return {}
            if old == new or found.get(old, new) != new:
                return {}
            found[old] = new
    return found


def renamed(name: str, text: str, instruction: str) -> str:
    """``text`` with every such name replaced: what the answer to a pure rename will mostly be."""
    pairs = _for_file(name, text, renames(instruction))
    return _names(name, text, pairs).sub(lambda found: pairs.get(found[0], found[0]), text) if pairs else text


def renamed_by_rule(name: str, text: str, instruction: str) -> str:
    """:func:`renamed` where no model is needed to say that it is right: no new name stands in ``text`` yet. Else empty.

    It knows names and no scopes, so a model that renames is preferred.
    """
    pairs = _for_file(name, text, renames(instruction))
    if not pairs or any(found in pairs.values() for found in _names(name, text, pairs).findall(text)):
        return ""
    after = renamed(name, text, instruction)
    return after if after != text else ""


def only_renamed(name: str, before: str, after: str, instruction: str) -> tuple[str, str]:
    """``before`` with the names that the answer changed as asked, and a note of what else it did.

    Without a pure rename it is ``after``, and no note.
    """
    pairs = _for_file(name, before, renames(instruction))
    if not pairs:
        return after, ""
    names = _names(name, before, pairs)
    old, new = split_lines(before), split_lines(after)
    if not any(found[0] in pairs for line in old for found in names.finditer(line)):
        # A word of plain English may be no name at all; then the instruction speaks of something else.
        code_like = [
            one for one in pairs if _CODE_LIKE.search(one) or re.search(rf"[`'\"]{re.escape(one)}", instruction)
        ]
        return (before, f"{code_like[0]} does not stand in {name}") if code_like else (after, "")
    swaps = not pairs.keys().isdisjoint(pairs.values())
    if not swaps and not _more(names, pairs, before, after):
        return before, f"the answer renames {' and '.join(pairs)} nowhere"
    shape = [[_shape(names, line) for line in lines] for lines in (old, new)]
    out: list[str] = []
    i = j = taken = 0
    for block in (*diff(*shape), None):
        i1, i2, j1, j2 = block or (len(old), len(old), len(new), len(new))
        out += [_mapped(names, pairs, was, now) for was, now in zip(old[i:i1], new[j:j1], strict=True)]
        out += _block(names, pairs, old[i1:i2], new[j1:j2])
        taken += max(i2 - i1, j2 - j1)
        i, j = i2, j2
    text = "\n".join(out) + ("\n" if before.endswith("\n") else "")
    told = " and ".join(pairs)
    olds = pairs.keys() - pairs.values()
    left = sum(any(found[0] in olds for found in names.finditer(line)) for line in out)
    notes = [f"put back {_lines(taken)} that the rename of {told} does not ask to change"] if taken else []
    notes += [f"{told} still {'stands' if len(pairs) == 1 else 'stand'} in {_lines(left)}"] if left else []
    return text, "; ".join(notes)


def _says_no_more(words: str) -> bool:
    before = ""
    for found in _WORD.finditer(words):
        word = found[0].strip("`'\"“”‘’:!.")
        if not word:
            continue
        known = _BESIDE.fullmatch(word) is not None
        if not known and not _WHERE.fullmatch(before) and not _WHERE.fullmatch(word):
            return False
        if not (_ARTICLE.fullmatch(word) and _WHERE.fullmatch(before)):
            before = word
    return True


def _bare(old: str, new: str) -> tuple[str, str]:
    """Without what both share in front: ``A.f`` to ``A.g`` or to ``g`` renames ``f``."""
    for between in ("::", "."):
        scope, _, last = old.rpartition(between)
        is_file = f".{last.lower()}" in BY_SUFFIX
        if scope and not is_file and new.rpartition(between)[0] in ("", scope):
            return last, new.rpartition(between)[2]
    return old, new


def _for_file(name: str, text: str, pairs: Mapping[str, str]) -> dict[str, str]:
    """A sign in front of both names (``--``, ``.``, ``$``) stays where the file has the name with it."""
    found = {}
    for old, new in pairs.items():
        sign = re.match(r"(?:--|[.#@$])?", old)
        mark = sign[0] if sign else ""
        if mark and (not new.startswith(mark) or old not in text or language_of(name, text) == "bash"):
            old = old.removeprefix(mark)
        found[old] = new if old.startswith(mark) else new.removeprefix(mark)
    return found


def _names(name: str, text: str, pairs: Mapping[str, str]) -> re.Pattern[str]:
    """Finds the old names and the new ones, as whole words of the file's language."""
    every = sorted({*pairs, *pairs.values()}, key=len, reverse=True)
    language = language_of(name, text)
    more = "$" if language in _DOLLARS else ""
    more += "-" if language in _DASHED or any("-" in one for one in every) else ""
    return re.compile(
        "|".join(
            ("" if re.match(r"[.#@$]", one) else rf"(?<![\w{more}])") + re.escape(one) + rf"(?![\w{more}])"
            for one in every
        )
    )


def _more(names: re.Pattern[str], pairs: Mapping[str, str], before: str, after: str) -> bool:
    """Whether some new name stands in ``after`` more often."""
    had, has = (Counter(names.findall(text)) for text in (before, after))
    return any(has[new] > had[new] for new in pairs.values())


def _shape(names: re.Pattern[str], line: str) -> str:
    return names.sub("\0", line.rstrip())


def _mapped(names: re.Pattern[str], pairs: Mapping[str, str], was: str, now: str) -> str:
    """``was`` with the names that stand in ``now`` in their order, where they are new names for its own."""
    mine = [found[0] for found in names.finditer(was)]
    theirs = [found[0] for found in names.finditer(now)]
    if len(mine) == len(theirs):
        chosen = iter(new if pairs.get(old) == new else old for old, new in zip(mine, theirs, strict=True))
        return names.sub(lambda found: next(chosen), was)
    return names.sub(_replaced(pairs), was) if _more(names, pairs, was, now) else was


def _block(names: re.Pattern[str], pairs: Mapping[str, str], old: list[str], new: list[str]) -> list[str]:
    """The old lines of a block that the answer also changed otherwise, with its new names."""
    mine = [n for n, line in enumerate(old) if any(found[0] in pairs for found in names.finditer(line))]
    theirs = [line for line in new if names.search(line)]
    out = list(old)
    for k, n in enumerate(mine):
        if len(old) == len(new):
            out[n] = _mapped(names, pairs, old[n], new[n])
        elif len(theirs) == len(mine):
            out[n] = _mapped(names, pairs, old[n], theirs[k])
        else:  # dropped or rewritten: the name goes with the others
            out[n] = names.sub(_replaced(pairs), old[n])
    return out


def _replaced(pairs: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    return lambda found: pairs.get(found[0], found[0])


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
