"""A shell command as what it would run: every simple command of it, wherever it stands.

The text is parsed by a grammar of bash. What the grammar cannot read, what is named only when it runs (``$TOOL``) and
what the grammar is known to read differently than bash does is *opaque*: it is never taken for something approved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from vivace.agent.approvals.names import names
from vivace.agent.languages import parse_tree

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_LENGTH = 64 * 1024


class Word(Struct, frozen=True):
    """One word. ``text`` is what the command gets when ``fixed``, else how it is written; a glob is not fixed."""

    text: str
    fixed: bool = True


class Simple(Struct, frozen=True):
    """One simple command: name and arguments, and the variables that are set for it alone."""

    words: tuple[Word, ...]
    env: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The program's base name; empty when it is only known at run time."""
        return self.words[0].text.rsplit("/", 1)[-1] if self.words and self.words[0].fixed else ""

    @property
    def fixed(self) -> tuple[str, ...] | None:
        """All words, when all are known."""
        return tuple(word.text for word in self.words) if all(word.fixed for word in self.words) else None

    def __str__(self) -> str:
        return " ".join([*self.env, *(word.text for word in self.words)])


class Redirect(Struct, frozen=True):
    """A file that the shell itself opens."""

    target: Word
    writes: bool


class Script(Struct, frozen=True):
    """Everything that a command text does, in order. ``opaque`` says what of it cannot be told beforehand."""

    commands: tuple[Simple, ...]
    redirects: tuple[Redirect, ...] = ()
    opaque: tuple[str, ...] = ()
    moves: bool = False
    """It changes its folder, so relative paths in it may mean anything."""


_ODD = re.compile(
    r"[^\S \t\n]|[\x00-\x08\x0b-\x1f\x7f]|[\ufeff\u200b-\u200f\u2028-\u202e\u2060-\u2069]"
    # A word broken over two lines, and a line that starts with a backslash: the grammar goes on with the line before.
    r"|(?<![^\s\\][ \t])\\\n|\n[ \t]*\\"
)
"""Blanks that only one of bash and the grammar takes for blanks, control characters, and odd backslashes."""

_CONTAINERS = names(
    "program list pipeline redirected_statement subshell compound_statement if_statement elif_clause else_clause "
    "while_statement for_statement c_style_for_statement case_statement case_item do_group negated_command "
    "test_command command_substitution process_substitution function_definition variable_assignments "
    "heredoc_redirect heredoc_body heredoc_content heredoc_start heredoc_end herestring_redirect file_redirect "
    "command command_name variable_assignment declaration_command unset_command comment "
    "word string raw_string ansi_c_string translated_string concatenation string_content simple_expansion expansion "
    "number variable_name special_variable_name subscript array arithmetic_expansion brace_expression regex "
    "extglob_pattern file_descriptor "
    "binary_expression unary_expression postfix_expression parenthesized_expression ternary_expression "
    "test_operator"
)

_SETTINGS = names(
    "CI DEBUG NO_COLOR FORCE_COLOR CLICOLOR COLUMNS LINES TERM LANG LANGUAGE TZ NODE_ENV RUST_BACKTRACE RUST_LOG "
    "PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONUTF8 PYTHONIOENCODING LOG_LEVEL VERBOSE "
    "SOURCE_DATE_EPOCH OMP_NUM_THREADS MKL_NUM_THREADS CUDA_VISIBLE_DEVICES GOMAXPROCS GOOS GOARCH CGO_ENABLED "
    "CARGO_TERM_COLOR PY_COLORS DJANGO_DEBUG"
)
"""Variables that change what a program prints or how fast, not which code it runs. They play no part in a rule."""
_RESERVED = names(
    "{ } ( ) ! [[ ]] (( )) if then elif else fi for in do done while until case esac select function ; & |"
)
"""Bash takes none of them for a program; where the grammar does, it has read the text differently than bash will."""
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
"""A name in small letters is a variable of the script by convention; those below are not."""
_NOT_PLAIN = re.compile(r".*_proxy|ld_.*|_")
_HIDDEN_CODE = re.compile(r"\$[({]|`|\\x|\\[0-7]")
_TESTS = re.compile(r"\[\[.* -(eq|ne|lt|gt|le|ge|v) |(\[|test)\s.*-v\s", re.DOTALL)
_READS = re.compile(r"read\b|mapfile\b|readarray\b|getopts\b")


def parse(text: str) -> Script:
    """Take a command text apart. Never raises; what cannot be read is in ``opaque``."""
    if len(text) > MAX_LENGTH:
        return Script((), opaque=("the command is too long to check",))
    if _ODD.search(text):
        return Script((), opaque=("it holds control characters, odd blanks, or a word broken over two lines",))
    try:
        tree = parse_tree("bash", text)
    except UnicodeEncodeError:
        return Script((), opaque=("it is not UTF-8",))
    if tree is None or tree.root_node.has_error:
        return Script((), opaque=("it cannot be parsed",))
    reader = _Reader(text)
    reader.visit(tree.root_node)
    return reader.script()


def sets_only_style(assignment: str) -> bool:
    """Whether ``NAME=value`` cannot change which code runs."""
    name = assignment.split("=", 1)[0].rstrip("+")
    return name in _SETTINGS or name.startswith("LC_")


class _Reader:
    """Walks the tree once and collects."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._commands: list[Simple] = []
        self._redirects: list[Redirect] = []
        self._opaque: list[str] = []
        self._env: list[str] = []
        self._moves = False
        self._sums = False
        self._hidden = False

    def script(self) -> Script:
        if self._sums and self._hidden:
            # Sums, subscripts and [[ -eq ]] evaluate what a variable holds, command substitutions in it included.
            self._opaque.append("a sum or subscript over text that is only known when it runs can run code")
        # A variable that is set for the whole script is set for each command: one that runs before it gains nothing.
        commands = [Simple(c.words, (*c.env, *(e for e in self._env if e not in c.env))) for c in self._commands]
        return Script(tuple(commands), tuple(self._redirects), tuple(dict.fromkeys(self._opaque)), self._moves)

    def visit(self, node: Node) -> None:
        stack = [node]
        while stack:  # no recursion: scripts may nest deeper than Python does
            node = stack.pop()
            if not node.is_named:
                continue
            if node.type not in _CONTAINERS:
                self._opaque.append(f"it holds a construct that is not understood ({node.type})")
            elif node.type == "command":
                self._command(node)
            elif node.type in ("declaration_command", "unset_command"):
                self._declaration(node)
            elif node.type == "variable_assignment":
                self._assignment(node)
            elif node.type == "file_redirect":
                self._redirect(node)
            elif node.type == "heredoc_redirect":
                self._heredoc(node)
            elif node.type == "test_command" and "\n" in _text(node):
                self._opaque.append("a condition goes over several lines")
            elif node.type == "expansion" and "@" in _text(node):
                self._opaque.append("an expansion with @ can run code")
            self._sums |= _evaluates(node)
            self._hidden |= _hides(node)
            stack += reversed(node.children)

    def _command(self, node: Node) -> None:
        words: list[Word] = []
        env: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                if not sets_only_style(_text(child)):
                    env.append(_text(child))
            elif child.type == "command_name":
                words += [word(part) for part in child.children]
            elif child.is_named and child.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                words.append(word(child))
            elif not child.is_named and child.type not in ("(", ")"):
                words.append(Word(_text(child)))  # == and =~ come bare
        if not words:
            return
        command = Simple(tuple(words), tuple(env))
        written = next((_text(child) for child in node.children if child.type == "command_name"), "")
        if written in _RESERVED:
            self._opaque.append(f"it cannot be parsed at {written}")
        if not words[0].fixed:
            self._opaque.append(f"the program is only known when it runs ({words[0].text})")
        if command.name in ("cd", "pushd", "popd"):
            self._moves = True
        self._commands.append(command)

    def _declaration(self, node: Node) -> None:
        """``export A=1``, ``declare -n b=c``, ``unset C``: the assignments count, options make it a command."""
        options = [child for child in node.children if child.is_named and child.type == "word"]
        if options or node.type == "unset_command":
            self._commands.append(Simple(tuple(Word(part, "$" not in part) for part in _text(node).split())))

    def _assignment(self, node: Node) -> None:
        text = _text(node)
        name = text.split("=", 1)[0].rstrip("+").split("[", 1)[0]
        if node.parent is not None and node.parent.type == "command":
            return
        exported = node.parent is not None and node.parent.type == "declaration_command"
        plain = _PLAIN_NAME.fullmatch(name) and not _NOT_PLAIN.fullmatch(name) and not exported
        if not plain and not sets_only_style(text):
            self._env.append(text)

    def _heredoc(self, node: Node) -> None:
        """Read once more by hand: the grammar takes some for ended that bash goes on with, and overlooks code in it."""
        parts = {child.type: child for child in node.children}
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        mark = re.fullmatch(r"(['\"]?)(\w+)\1", _text(start)) if start is not None else None
        if mark is None or start is None or end is None:
            self._opaque.append("a here-document is not understood")
            return
        first = start.start_point[0] + 1
        tabs = "\t" if "<<-" in parts else ""
        last = next((n for n in range(first, len(self._lines)) if self._lines[n].lstrip(tabs) == mark[2]), -1)
        body = "\n".join(self._lines[first:last])
        once = sum(line.count("<<") - 2 * line.count("<<<") for line in self._lines[: max(0, last)]) == 1
        if last != end.start_point[0] or not once or (not mark[1] and re.search(r"[`\\]|\$[({\[]", body)):
            self._opaque.append("a here-document is not understood")

    def _redirect(self, node: Node) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        if operator in (">&", "<&") and all(re.fullmatch(r"\d+-?|-", _text(target)) for target in targets):
            return  # one descriptor made another
        if operator in ("<&-", ">&-"):
            return
        # The grammar takes words behind a target for further targets; for bash they are arguments.
        if len(targets) != 1:
            self._opaque.append("a redirection is followed by more words")
            return
        self._redirects.append(Redirect(word(targets[0]), writes=operator != "<"))


def word(node: Node) -> Word:
    """What a word of the tree stands for."""
    kind, text = node.type, _text(node)
    if kind in ("word", "number"):
        if _GLOB.search(_unescaped_only(text)) or text.startswith("~"):
            return Word(text, fixed=False)
        return Word(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))
    if kind == "raw_string":
        return Word(text[1:-1])
    if kind == "string":
        inner = [child for child in node.children if child.is_named]
        if all(child.type == "string_content" for child in inner):
            return Word(re.sub(r'\\([$`"\\])', r"\1", text[1:-1]).replace("\\\n", ""))
        return Word(text, fixed=False)
    if kind == "concatenation":
        parts = [word(child) for child in node.children]
        if all(part.fixed for part in parts) and not _GLOB.search("".join(_bare(child) for child in node.children)):
            return Word("".join(part.text for part in parts))
        return Word(text, fixed=False)
    if not node.is_named:
        return Word(text)
    return Word(text, fixed=False)


_GLOB = re.compile(r"[*?\[]|\{.*(,|\.\.).*\}|[@!+]\(", re.DOTALL)
"""Characters for which bash puts other words in place of one."""


def _unescaped_only(text: str) -> str:
    return re.sub(r"\\.", "", text, flags=re.DOTALL)


def _bare(node: Node) -> str:
    """The part of a word in which globs and braces count."""
    return _unescaped_only(_text(node)) if node.type not in ("string", "raw_string") else ""


def _evaluates(node: Node) -> bool:
    """Bash takes a text that stands here for an expression."""
    if node.type in (
        "arithmetic_expansion",
        "c_style_for_statement",
        "subscript",
        "declaration_command",
        "unset_command",
    ):
        return True
    if node.type == "expansion":
        return ":" in _text(node)
    opening = node.children[0].type if node.children else ""
    return opening == "((" or (node.type in ("test_command", "command") and _TESTS.match(_text(node)) is not None)


def _hides(node: Node) -> bool:
    """Text that may hold a command substitution comes in here unevaluated."""
    if node.type in ("raw_string", "string", "word", "heredoc_body", "ansi_c_string"):
        return _HIDDEN_CODE.search(_text(node)) is not None
    if node.type == "variable_assignment":
        return "$" in _text(node) or "`" in _text(node)
    return node.type == "command" and _READS.match(_text(node)) is not None


def _text(node: Node) -> str:
    return node.text.decode("utf-8", "replace") if node.text else ""
