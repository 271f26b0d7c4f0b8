"""Calls that show how two versions of a file differ: drawn from its examples, else from what its parameters look like.

Candidates that give the same for all of them are one answer, however they are written.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from vivace.agent.languages import python_tree
from vivace.agent.turns.examples import Example

MOST_FUNCTIONS = 3
MOST_CALLS = 40
"""Calls of one function; those that the file itself cannot be called with are left out later."""

_POOLS: dict[str, list[Any]] = {
    "int": [3, 0, 10, -2, 1, 7, 100],
    "float": [1.5, 0.0, -2.25, 10.0, 3.7],
    "str": ["Hello World", "", "abcba", "a1, B2 c3", "x"],
    "bool": [True, False],
    "ints": [[3, 1, 2, 5], [], [5, 5, -2, 0, 8], [1], [1, 2, 3, 4, 5, 6]],
    "floats": [[1.0, 2.5, 4.0], [], [0.5], [-1.5, 2.0, 2.0, 9.25]],
    "strs": [["b", "a", "abc"], [], ["hello", "World", "hello"], ["x1"]],
    "rows": [[[1, 2], [3, 4]], [], [[5]]],
    "dict": [{"a": 1, "b": 2}, {}, {"x": "y"}],
}
_ANNOTATED = [
    (r"list\[int|sequence\[int|iterable\[int|tuple\[int|set\[int", "ints"),
    (r"list\[float|sequence\[float|iterable\[float", "floats"),
    (r"list\[str|sequence\[str|iterable\[str|set\[str", "strs"),
    (r"list\[list|sequence\[sequence", "rows"),
    (r"\bdict|mapping", "dict"),
    (r"\blist|sequence|iterable", "ints"),
    (r"\bint\b", "int"),
    (r"\bfloat\b", "float"),
    (r"\bstr\b", "str"),
    (r"\bbool\b", "bool"),
]
_CALLED = [
    (r"^(n|k|m|i|j|x|y|z|a|b|c|num|number|count|index|start|stop|end|size|limit|width|height|age|year|value)$", "int"),
    (r"^(s|t|text|string|word|name|sentence|line|message|str\d?|char|pattern|prefix|suffix|title)$", "str"),
    (r"^(words|strings|names|lines|texts)$", "strs"),
    (r"^(l|lst\d?|li|arr\w*|nums|numbers|values|list\d?|items|data|array\w*|elements|seq|xs|\w+_list)$", "ints"),
    (r"^(matrix|grid|rows|table|board)$", "rows"),
    (r"^(d|dict\d?|dictionary|mapping|counts|scores)$", "dict"),
]
_FAMILIES = ("int", "str", "ints", "strs", "float", "dict")


def inputs_of(text: str, instruction: str, examples: Sequence[Example]) -> list[str]:
    """Calls of the functions that the instruction is about, as source. Deterministic."""
    tree = python_tree(text)
    if tree is None:
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    named = [node for node in functions if re.search(rf"(?<!\w){re.escape(node.name)}(?!\w)", instruction)]
    chosen = named or (functions if len(functions) <= MOST_FUNCTIONS else [])
    found: list[str] = []
    for node in chosen[:MOST_FUNCTIONS]:
        known = [example.call for example in examples if example.name == node.name]
        calls = _varied(known) if known else _made(node)
        found += itertools.islice(dict.fromkeys(calls), MOST_CALLS)
    return found


def _varied(calls: Sequence[str]) -> Iterator[str]:
    """The calls themselves, and each with one argument changed."""
    yield from calls
    changed = [_changes(call) for call in calls[:6]]
    for turn in itertools.zip_longest(*changed):
        yield from (call for call in turn if call is not None)


def _changes(call: str) -> Iterator[str]:
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    name = ast.unparse(node.func)
    places: list[tuple[str, Any]] = [("", ast.literal_eval(argument)) for argument in node.args]
    places += [(f"{word.arg}=", ast.literal_eval(word.value)) for word in node.keywords]
    for at, (_, value) in enumerate(places):
        for other in _others(value):
            given = [f"{key}{other if n == at else repr(known)}" for n, (key, known) in enumerate(places)]
            yield f"{name}({', '.join(given)})"


def _others(value: Any) -> list[str]:
    """Literals of the same kind."""
    if isinstance(value, bool):
        return [repr(not value)]
    if isinstance(value, (int, float)):
        return [repr(value + 1), repr(-value), repr(value * 2), "0"]
    if isinstance(value, str):
        return [repr(value[::-1]), repr(value + value), repr(value[1:]), repr(value.swapcase()), "''"]
    if isinstance(value, (list, tuple)):
        several = [value[::-1], value[1:], [*value, *value[:1]], (), [*value, *value]]
        return [repr(type(value)(other)) for other in several]
    return ["{}"] if isinstance(value, dict) else []


def _made(node: ast.FunctionDef) -> Iterator[str]:
    """From annotations, else from the names of the parameters, else from a few kinds of values in turn."""
    spec = node.args
    required = [*spec.posonlyargs, *spec.args]
    required = required[: len(required) - len(spec.defaults)]
    if spec.kw_defaults and any(default is None for default in spec.kw_defaults):
        return
    if not required and spec.vararg is not None:
        required = [ast.arg("n"), ast.arg("m")]
    guesses = [_family(argument) for argument in required]
    if required and None in guesses and len(required) <= 2:
        free = [_FAMILIES if guess is None else (guess,) for guess in guesses]
        mixes: list[tuple[str, ...]] = list(itertools.product(*free))
    else:
        mixes = [tuple(guess or "int" for guess in guesses)]
    for turn in range(7):
        for mix in mixes:
            pools = [_POOLS[family] for family in mix]
            values = [repr(pool[(turn + 2 * n * (turn > 0)) % len(pool)]) for n, pool in enumerate(pools)]
            yield f"{node.name}({', '.join(values)})"


def _family(argument: ast.arg) -> str | None:
    if argument.annotation is not None:
        written = ast.unparse(argument.annotation).lower()
        for pattern, family in _ANNOTATED:
            if re.search(pattern, written):
                return family
    return next((family for pattern, family in _CALLED if re.search(pattern, argument.arg.lower())), None)
