"""What a reply does although nobody asked: nothing but layout or hints, examples of use at the end, other code.

Small models asked to mend a function they do not understand put blanks around its operators or hints at its arguments,
and close a file as they would close a chat answer: with a few calls that print. The first is no edit; the second is
left out, and told. Asked
for comments or type hints, they swap a branch on the way: refused, since neither changes what code does. Layout and
examples are told apart in Python only.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings

from vivace.agent.asked import prose
from vivace.agent.languages import language_of, parse_tree, python_tree
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
_ABOUT_HINTS = re.compile(
    r"\b(?:typ|hint|annot|signature|mypy|pyright|optional|union|generic|doc|comment|descri|explain)", re.IGNORECASE
)
_ABOUT_USE = re.compile(
    r"\b(add|writ|includ|giv|creat|provid)\w*\b[^.\n]{0,40}\b(examples?|usages?|tests?|asserts?)\b|print|demo|\bmain\b"
    r"|\bcall|\brun\b|\bshow|script|\blog|output|invoke|doctest|command line|entry point",
    re.IGNORECASE,
)


_DESCRIBES = re.compile(
    r"\s*(?:please\s+)?(?:(?:add|write|insert|put|provide|give)\s+(?:[\w.()'`-]+\s+){0,6}?"
    r"(?P<what>type[ -]?hints?|(?:type )?annotations?|doc ?strings?|comments?|documentation|js ?docs?|java ?docs?)"
    r"|(?:document|annotate|comment)\s)\b(?P<rest>[^.;\n]*(?:\.(?=\w)[^.;\n]*)*)[.!]?\s*",
    re.IGNORECASE,
)
_AND_MORE = re.compile(
    r"\b(?:fix|correct|mend|make|chang|remov|delet|renam|return|rais|add|use|replac|convert|handl|implement|support|optim"
    r"|sort|improv|out)\w*",
    re.IGNORECASE,
)


def changes_code(name: str, before: str, after: str, instruction: str) -> str:
    """Why this is more than the comments, docstrings or type hints that alone were asked for; else empty."""
    asked = _described(instruction)
    if asked is None:
        return ""
    language = language_of(name, before)
    hints = asked["what"] is None or re.search("hint|annotation", asked["what"], re.IGNORECASE)
    if language == "python":
        old, new = _bare(before), _bare(after)
        found = iter(new)
        same = all(statement in found for statement in old)  # in their order; new ones may stand between them
    elif hints:
        return ""
    else:
        same = _code_tokens(language, before) == _code_tokens(language, after)
    what = (asked["what"] or "description").lower()
    if not what.endswith("s") and what != "documentation":
        what = f"{'an' if what[0] == 'a' else 'a'} {what}"
    return "" if same else f"the answer also changes what the code does, and the instruction asks for {what} only"


def describes(instruction: str) -> bool:
    """Whether it asks for a docstring, comments or type hints, and for nothing else."""
    return _described(instruction) is not None


def _described(instruction: str) -> re.Match[str] | None:
    asked = _DESCRIBES.fullmatch(instruction)
    return None if asked is None or _AND_MORE.search(prose(asked["rest"].replace("'", "`"))) else asked


def only_layout(name: str, before: str, after: str, instruction: str) -> str:
    """Why this is no edit: the code means the same, token for token of its tree; empty when it may be one.

    New comments count as an edit, unless the instruction speaks of what the code does and of no comment.
    """
    if language_of(name, before) != "python" or _ABOUT_LAYOUT.search(instruction):
        return ""
    old, new = python_tree(before), python_tree(after)
    if old is None or new is None or not _same(old, new, split_lines(before), split_lines(after)):
        return ""
    if _comments(before) == _comments(after):
        return "the answer changes nothing but the layout"
    return "the answer changes nothing but comments" if _ABOUT_BEHAVIOUR.search(instruction) else ""


def only_described(name: str, before: str, after: str, instruction: str) -> str:
    """Why this is no edit: type hints and docstrings differ, where the instruction is about what the code does."""
    if language_of(name, before) != "python" or not _ABOUT_BEHAVIOUR.search(instruction):
        return ""
    if _ABOUT_HINTS.search(instruction) or not _only_describes(before, after):
        return ""
    return "the answer changes nothing but type hints or docstrings"


def without_examples(name: str, before: str, after: str, instruction: str) -> tuple[str, str]:
    """``after`` without the printing, asserting or ``__main__`` code that it newly ends with, and a note of that."""
    if language_of(name, before) != "python" or _ABOUT_USE.search(instruction):
        return after, ""
    old, new = python_tree(before), python_tree(after)
    if old is None or new is None or not any(isinstance(node, _DEFINITION) for node in new.body):
        return after, ""
    if not new.body or not _may_be_example(new.body[-1]):
        return after, ""
    known = {ast.dump(node) for node in old.body if _may_be_example(node)}
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


class _Bare(ast.NodeTransformer):
    """Without annotations, docstrings and imports; ``pass`` goes too, since a docstring takes its place."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value)) if node.value else None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None


def _bare(text: str) -> list[str]:
    """The statements of a module as trees without all that only describes; none when it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [ast.dump(node) for node in _Bare().visit(ast.parse(text)).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _only_describes(before: str, after: str) -> bool:
    """Whether both are the same beside hints and docstrings, and what is newly imported serves those alone."""
    new = _bare(after)
    if not new or new != _bare(before):
        return False
    was, now = _import_names(before), _import_names(after)
    return was <= now and (now - was).isdisjoint(re.findall(r"\bid='(\w+)'", "\n".join(new)))


def _import_names(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text))
    return {
        alias.asname or alias.name.split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _code_tokens(language: str, text: str) -> list[bytes] | None:
    """What stands in a file beside its comments, token by token; None where nobody can tell."""
    tree = parse_tree(language, text)
    if tree is None or tree.root_node.has_error:
        return None
    found: list[bytes] = []
    waiting = [tree.root_node]
    while waiting:
        node = waiting.pop()
        if "comment" in node.type:
            continue
        if node.child_count:
            waiting += reversed(node.children)
        else:
            found.append((node.text or b"").strip())
    return [token for token in found if token]


def _same(old: ast.Module, new: ast.Module, old_lines: list[str], new_lines: list[str]) -> bool:
    """Whether both mean the same. What stands in the same lines does; of the rest, the first difference decides."""
    if len(old.body) != len(new.body):
        return False
    for one, other in zip(old.body, new.body, strict=True):
        same_place = (one.col_offset, one.end_col_offset) == (other.col_offset, other.end_col_offset)
        if same_place and _lines_of(one, old_lines) == _lines_of(other, new_lines):
            continue
        if type(one) is not type(other) or ast.dump(one) != ast.dump(other):
            return False
    return True


def _lines_of(node: ast.stmt, lines: list[str]) -> list[str]:
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return lines[first - 1 : node.end_lineno]


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
