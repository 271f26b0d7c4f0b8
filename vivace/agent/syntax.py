"""Does the file still parse? Checked before and after; only what was fine and is now broken counts.

Nothing is ever executed: Python is compiled and thrown away, JSON and TOML are read, the rest goes through tree-sitter.
"""

from __future__ import annotations

import functools
import json
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from vivace.agent.languages import language_of, parse_tree


@dataclass(frozen=True)
class Syntax:
    """``fault`` says what broke. When ``checked`` is false, ``note`` says why nothing can be said."""

    checked: bool
    fault: str = ""
    note: str = ""


Checker = Callable[[str], "str | None"]
"""Text -> the fault, an empty string when there is none, or ``None`` when this checker cannot say."""


def compare(name: str, before: str, after: str) -> Syntax:
    """Judge ``after`` by the first checker that finds ``before`` sound; what was broken may be mended."""
    language = language_of(name, before)
    broken = ""
    for checker in _checkers(language):
        fault = checker(before)
        if fault is None:
            continue
        if fault:
            if checker(after) == "":
                return Syntax(checked=True)
            broken = broken or fault
            continue
        return Syntax(checked=True, fault=checker(after) or "")
    if broken:
        return Syntax(checked=False, note=f"does not parse, and did not before the edit ({broken})")
    return Syntax(checked=False, note=f"no syntax check for {language or 'this kind of file'}")


def _checkers(language: str) -> list[Checker]:
    if language == "python":
        return [_python]
    if language == "toml":
        return [_toml]
    tree: list[Checker] = [lambda text: _tree(language, text)]
    if language in _HEADS:  # fragments without a package clause are checked all the same
        return [lambda text: _ordered(language, text), *tree]
    if language == "json":
        return [_json, *tree]
    if language == "c":  # a .h file may hold C++
        return [*tree, lambda text: _tree("cpp", text)]
    return tree


@functools.lru_cache(maxsize=4)
def _python(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, "<edit>", "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            return str(error) or type(error).__name__
    return ""


def _json(text: str) -> str:
    try:
        json.loads(text, object_pairs_hook=_without_twins)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}: {error.msg}"
    except _Twin as error:
        return f"the key {error} stands twice in one object"
    except RecursionError:
        return "nested too deeply"
    return ""


class _Twin(Exception):
    """A key that an object has already: most readers take the last one, and the others are lost."""


def _without_twins(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Twin(json.dumps(key, ensure_ascii=False)[:60])
        seen.add(key)


def _toml(text: str) -> str:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return ""


_HEADS = {
    "go": ("package_clause", "import_declaration"),
    "java": ("package_declaration", "import_declaration"),
}
"""What has to stand at the head of a file, in this order. The grammars take both anywhere, and the first twice."""


def _ordered(language: str, text: str) -> str | None:
    """As :func:`_tree`, and one package clause, then the imports, then the rest."""
    tree = parse_tree(language, text)
    if tree is None or tree.root_node.has_error:
        return _tree(language, text)
    heads, reached, packages = _HEADS[language], 0, 0
    for node in tree.root_node.named_children:
        if "comment" in node.type:
            continue
        rank = heads.index(node.type) if node.type in heads else len(heads)
        packages += rank == 0
        if packages > 1:
            return f"line {node.start_point[0] + 1}: a second package clause"
        if rank < reached:
            what = "import" if rank else "package clause"
            return f"line {node.start_point[0] + 1}: the {what} stands behind other code"
        reached = rank
    return "there is no package clause" if language == "go" and not packages else ""


def _tree(language: str, text: str) -> str | None:
    tree = parse_tree(language, text)
    if tree is None:
        return None
    node = tree.root_node
    if not node.has_error:
        return ""
    while not (node.is_error or node.is_missing):
        node = next(child for child in node.children if child.has_error or child.is_missing)
    what = f"{node.type} is missing" if node.is_missing else "cannot be parsed"
    return f"line {node.start_point[0] + 1}: {what}"
