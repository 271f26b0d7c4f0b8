"""What a text itself says that a function gives: ``f(2) == 4``, ``>>> f(2)``, "should return 3 for [1, 2]".

Only calls and values that are literals count, so nothing is run to read them. Whoever writes an instruction for people
writes such lines for people; a line that is not understood is passed over.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from vivace.agent.languages import python_tree

MOST = 24
_LONGEST = 400
"""Characters of a line or a value that are looked at."""


class Example(Struct, frozen=True):
    """``call`` gives ``value``, both Python source; or it raises ``error``, a name, and ``value`` is empty.

    ``asked``: the instruction has it. Others stand in the file, and an instruction may make them untrue.
    """

    call: str
    value: str = ""
    error: str = ""
    asked: bool = True

    @property
    def name(self) -> str:
        return self.call.split("(", 1)[0]


_BETWEEN = re.compile(
    r"\s*(?:#\s*)?(?:={1,3}>?|=+>|-+>|➞|→|⇒|:|(?:is|are)\b|returns?\b|gives?\b|yields?\b|equals?\b|evaluates to\b"
    r"|(?:should|must|has to|needs to) (?:return|be|give|equal|yield|evaluate to)\b)\s*"
)
_RAISES = re.compile(
    r"\s*(?:#\s*)?(?:(?:should|must|has to) )?(?:raises?|throws?)\s+(?:an? )?(\w+(?:Error|Exception))\b"
)
_CALL = re.compile(r"(?<![\w.)])([A-Za-z_]\w*)\(")
_VALUE_FOR = re.compile(r"\b(?:returns?|gives?|yields?)\s+(?=[\[({\"'\d\-TFN])")
_FOR = re.compile(r"\s*,?\s*(?:for|when given|given|on)\s+")
_PAIR = re.compile(r"\s*(?:,|and|;)?\s*([A-Za-z_]\w*)\s*[=:]\s*")
_RESULT = re.compile(
    r"\b(?:(?:should|must) (?:return|be|give)|(?:result|output|answer)(?: (?:will be|should be|is|:))?|returns?)"
    r"\s*:?\s*"
)
_GIVEN = re.compile(r"^\W*(?:for|if|given|with|input\s*:?)\s*", re.IGNORECASE)
_OUTPUT = re.compile(r"^\W*(?:output|result|returns?)\s*:?\s*", re.IGNORECASE)
_MENDS = re.compile(r"\b(fix|mend|repair|bugs?|correct|wrong|broken|fails?|docstrings?|documented|examples?)\b", re.I)
_TELLS_A_FAULT = re.compile(
    r"\b(but|instead|currently|wrongly|incorrectly|at the moment|right now|as of now|actually|rather than|bug:)\b",
    re.IGNORECASE,
)
"""A sentence with one of these may say what is wrong now."""


def examples_of(instruction: str, text: str) -> list[Example]:
    """The examples of an instruction for a Python file with this ``text``, and those of its docstrings.

    Of docstrings, prose counts only when the instruction wants something mended: else what it says is nobody's concern.
    """
    tree = python_tree(text)
    functions = _functions(tree) if tree is not None else {}
    found = list(_read(instruction, functions, asked=True))
    for docstring in _docstrings(tree) if tree is not None else ():
        told = _read(docstring, functions, asked=False)
        found += [example for example in told if _MENDS.search(instruction) or f">>> {example.call}" in docstring]
    first = {example.call: example for example in reversed(found)}
    return [example for example in dict.fromkeys(found) if first[example.call] == example][:MOST]


def literal(text: str) -> tuple[str, str] | None:
    """The longest literal that ``text`` begins with, and what follows it."""
    text = text[:_LONGEST]
    for end in range(len(text), 0, -1):
        last, following = text[end - 1], text[end : end + 1]
        if last.isspace() or last in ",." or following.isalnum() or following in ("_", '"', "'"):
            continue
        if is_literal(text[:end]):
            return text[:end], text[end:]
    return None


def is_literal(source: str) -> bool:
    try:
        ast.literal_eval(source)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _read(text: str, functions: dict[str, list[str]], *, asked: bool) -> Iterator[Example]:
    lines = [line.replace("`", "").strip() for line in text.splitlines()]
    only = _only(text, functions)
    for n, line in enumerate(lines):
        if len(line) > _LONGEST:
            continue
        following = next((later for later in lines[n + 1 : n + 3] if later), "")
        if line.startswith(">>>"):
            source = line[3:].strip()
            yield from _session(source, following, asked) if _is_call(source) else _calls(source, functions, asked)
            continue
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", line):
            if not (asked and _TELLS_A_FAULT.search(sentence)):
                yield from _calls(sentence, functions, asked)
                if only is not None:
                    yield from _told(sentence, only, functions[only], asked)
        if only is not None and _OUTPUT.match(following):
            yield from _input_output(line, following, only, functions[only], asked)


def _session(source: str, wanted: str, asked: bool) -> Iterator[Example]:
    if is_literal(wanted):
        yield Example(source, wanted, asked=asked)


def _calls(line: str, functions: dict[str, list[str]], asked: bool) -> Iterator[Example]:
    """``f(2) == 4``, ``f(2) should return 4``, ``f(-1) raises ValueError``."""
    for match in _CALL.finditer(line):
        if match[1] not in functions and (not asked or hasattr(builtins, match[1])):
            continue
        call = _closed(line[match.start() :])
        if call is None or not _is_call(call):
            continue
        rest = line[match.start() + len(call) :]
        if raised := _RAISES.match(rest):
            yield Example(call, error=raised[1], asked=asked)
        elif (between := _BETWEEN.match(rest)) and (value := literal(rest[between.end() :])):
            yield Example(call, value[0], asked=asked)


def _told(line: str, name: str, parameters: list[str], asked: bool) -> Iterator[Example]:
    """``should return 3 for [1, 2]``; ``For x = 2, y = 3 the result should be 5``."""
    for match in _VALUE_FOR.finditer(line):
        value = literal(line[match.end() :])
        joint = _FOR.match(value[1]) if value else None
        if value and joint and (given := literal(value[1][joint.end() :])):
            yield Example(f"{name}({given[0]})", value[0], asked=asked)
    if (start := _GIVEN.match(line)) and (call := _pairs(line[start.end() :], name, parameters)):
        told = _RESULT.search(call[1])
        if told and (value := literal(call[1][told.end() :])):
            yield Example(call[0], value[0], asked=asked)


def _input_output(line: str, following: str, name: str, parameters: list[str], asked: bool) -> Iterator[Example]:
    """``Input: [1, 2]`` and in the next line ``Output: 3``."""
    start, told = _GIVEN.match(line), _OUTPUT.match(following)
    if start is None or told is None:
        return
    given, value = line[start.end() :], literal(following[told.end() :])
    if value is None:
        return
    if call := _pairs(given, name, parameters):
        yield Example(call[0], value[0], asked=asked)
    elif is_literal(f"[{given}]"):
        yield Example(f"{name}({given})", value[0], asked=asked)


def _pairs(text: str, name: str, parameters: list[str]) -> tuple[str, str] | None:
    """``x = 2, y = 3 and then`` -> the call with these arguments, and what follows."""
    given: dict[str, str] = {}
    while (match := _PAIR.match(text)) and (value := literal(text[match.end() :])):
        given[match[1]], text = value[0], value[1]
        if isinstance(ast.literal_eval(value[0]), tuple) and not value[0].startswith("("):
            return None  # two values with a comma between them
    if not given:
        return None
    by_name = all(key in parameters for key in given)
    arguments = ", ".join(f"{key}={value}" if by_name else value for key, value in given.items())
    return f"{name}({arguments})", text


def _closed(text: str) -> str | None:
    """The call that ``text`` begins with, to its closing parenthesis."""
    for match in re.finditer(r"\)", text):
        try:
            ast.parse(text[: match.end()], mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        return text[: match.end()]
    return None


def _is_call(source: str) -> bool:
    """A call of a plain name with literals only."""
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if any(keyword.arg is None for keyword in node.keywords):
        return False
    return all(is_literal(ast.unparse(value)) for value in [*node.args, *(word.value for word in node.keywords)])


def _functions(tree: ast.Module) -> dict[str, list[str]]:
    """Top-level functions and their parameters."""
    return {
        node.name: [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def _only(text: str, functions: dict[str, list[str]]) -> str | None:
    """The function that a sentence without a name is about."""
    named = [name for name in functions if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    candidates: Sequence[str] = named or list(functions)
    return candidates[0] if len(candidates) == 1 else None


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
