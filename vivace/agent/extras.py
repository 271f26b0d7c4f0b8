"""What a reply does although nobody asked: nothing but layout, or examples of use at the end of the file. Python only.

Small models asked to mend a function they do not understand put blanks around its operators, and close a file as they
would close a chat answer: with a few calls that print. The first is no edit; the second is left out, and told.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

from vivace.agent.languages import language_of, python_tree
from vivace.agent.workspace import split_lines

_ABOUT_LAYOUT = re.compile(
    r"space|trailing|blank|format|lint|pep ?8|indent|style|tidy|clean|readab|\bblack\b|\bruff\b|wrap|align|newline"
    r"|\blines?\b|semicolon|parenthes|bracket|quote|comment|doc|typo|spell|literal|notation|underscore|hex",
    re.IGNORECASE,
)
_ABOUT_BEHAVIOUR = re.compile(
    r"\b(fix|bugs?|correct|return|raise|handle|support|implement|optimi[sz]e|faster|parameter|exclude|ignore)",
    re.IGNORECASE,
)
_ABOUT_USE = re.compile(
    r"\b(add|writ|includ|giv|creat|provid)\w*\b[^.\n]{0,40}\b(examples?|usages?|tests?|asserts?)\b|print|demo|\bmain\b"
    r"|\bcall|\brun\b|\bshow|script|\blog|output|invoke|doctest|command line|entry point",
    re.IGNORECASE,
)


def only_layout(name: str, before: str, after: str, instruction: str) -> str:
    """Why this is no edit: the code means the same, token for token of its tree; empty when it may be one.

    New comments count as an edit, unless the instruction speaks of what the code does and of no comment.
    """
    if language_of(name, before) != "python" or _ABOUT_LAYOUT.search(instruction):
        return ""
    old, new = python_tree(before), python_tree(after)
    if old is None or new is None or ast.dump(old) != ast.dump(new):
        return ""
    if _comments(before) == _comments(after):
        return "the answer changes nothing but the layout"
    return "the answer changes nothing but comments" if _ABOUT_BEHAVIOUR.search(instruction) else ""


def without_examples(name: str, before: str, after: str, instruction: str) -> tuple[str, str]:
    """``after`` without the printing, asserting or ``__main__`` code that it newly ends with, and a note of that."""
    if language_of(name, before) != "python" or _ABOUT_USE.search(instruction):
        return after, ""
    old, new = python_tree(before), python_tree(after)
    if old is None or new is None or not any(isinstance(node, _DEFINITION) for node in new.body):
        return after, ""
    known = {ast.dump(node) for node in old.body}
    start = len(new.body)
    while start and _may_be_example(new.body[start - 1]) and ast.dump(new.body[start - 1]) not in known:
        start -= 1
    added = new.body[start:]
    if not any(_shows(node) for node in added) or not isinstance(new.body[start - 1], _DEFINITION):
        return after, ""
    lines = split_lines(after)
    first = added[0].lineno - 1
    there = set(split_lines(before))
    while first and (not lines[first - 1].strip() or _is_new_comment(lines[first - 1], there)):
        first -= 1
    if first < (new.body[start - 1].end_lineno or 0):
        return after, ""  # they share a line
    text = "".join(line + "\n" for line in lines[:first])
    return text, "left out the examples of use that the answer added at the end"


_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _comments(text: str) -> list[str]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [token.string.strip("# \t") for token in tokens if token.type == tokenize.COMMENT]


def _may_be_example(node: ast.stmt) -> bool:
    return _shows(node) or isinstance(node, ast.Assign)


def _shows(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__")
    call = node.value if isinstance(node, ast.Expr) else None
    prints = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    return prints or isinstance(node, ast.Assert)


def _is_new_comment(line: str, there: set[str]) -> bool:
    return line.startswith("#") and line not in there
