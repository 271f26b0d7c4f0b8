"""Functions and classes of a file, by name and line: what an edit may target and what it must not lose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vivace.agent.languages import parse_tree, python_tree

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class Definition:
    """One definition. ``start`` and ``end`` count lines from 0, half open, decorators included."""

    name: str
    scope: str
    """Dotted names of what it stands in; empty at the top level."""
    kind: str
    """``function`` or ``class`` (every type)."""
    start: int
    end: int

    @property
    def qualname(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


def definitions(language: str, text: str) -> list[Definition] | None:
    """All definitions in order, nested ones too; ``None`` when the text cannot be parsed or nobody knows how."""
    if language == "python":
        module = python_tree(text)
        return None if module is None else list(_python(module, ""))
    tree = parse_tree(language, text)
    if tree is None or (tree.root_node.has_error and language != "c"):
        return None
    return list(_tree(tree.root_node, ""))


def _python(node: ast.AST, scope: str) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            start = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)]) - 1
            kind = "class" if isinstance(child, ast.ClassDef) else "function"
            found = Definition(child.name, scope, kind, start, child.end_lineno or child.lineno)
            yield found
            yield from _python(child, found.qualname)
        elif not isinstance(child, ast.expr):
            yield from _python(child, scope)


_FUNCTIONS = {
    "function_declaration",
    "generator_function_declaration",
    "method_definition",
    "method_declaration",
    "constructor_declaration",
    "function_item",
    "function_definition",
}
_CLASSES = {
    "class_declaration",
    "abstract_class_declaration",
    "interface_declaration",
    "enum_declaration",
    "record_declaration",
    "type_alias_declaration",
    "type_spec",
    "struct_item",
    "enum_item",
    "trait_item",
    "impl_item",
    "mod_item",
    "class_specifier",
    "struct_specifier",
    "enum_specifier",
    "namespace_definition",
}
_WRAPPERS = {"export_statement", "type_declaration", "template_declaration", "lexical_declaration"}
_VALUES = {"arrow_function", "function_expression", "class"}


def _tree(node: Node, scope: str) -> Iterator[Definition]:
    for child in node.children:
        kind = "function" if child.type in _FUNCTIONS else "class" if child.type in _CLASSES else ""
        if child.type == "variable_declarator":  # const f = () => ...
            value = child.child_by_field_name("value")
            kind = "function" if value is not None and value.type in _VALUES else ""
        name = _name(child) if kind and (child.type.endswith("declaration") or _has_body(child)) else ""
        if not name:
            yield from _tree(child, scope)
            continue
        outer = child
        while outer.parent is not None and outer.parent.type in _WRAPPERS:
            outer = outer.parent
        found = Definition(name, scope, kind, outer.start_point[0], outer.end_point[0] + 1)
        yield found
        yield from _tree(child, found.qualname)


def _has_body(node: Node) -> bool:
    """Mentions of a type (``struct s *p``) are no definitions of it."""
    return not node.type.endswith("_specifier") or node.child_by_field_name("body") is not None


def _name(node: Node) -> str:
    found = node.child_by_field_name("name") or node.child_by_field_name("type")  # an impl block has a type
    inner = node.child_by_field_name("declarator")
    while found is None and inner is not None:  # C: int (*f(void))(int)
        if inner.type in ("identifier", "field_identifier", "qualified_identifier", "destructor_name", "operator_name"):
            found = inner
        inner = inner.child_by_field_name("declarator")
    if node.type == "function_definition" and node.child_by_field_name("declarator") is not None:
        found = _declared(node) or found
    return found.text.decode("utf-8", "replace") if found is not None and found.text else ""


def _declared(node: Node) -> Node | None:
    """The name inside the declarators of a C or C++ function (its ``type`` field is what it returns)."""
    inner = node.child_by_field_name("declarator")
    while inner is not None:
        deeper = inner.child_by_field_name("declarator") or next(
            (child for child in inner.named_children if inner.type == "reference_declarator"), None
        )
        if deeper is None:
            return inner if "identifier" in inner.type or inner.type.endswith("_name") else None
        inner = deeper
    return None
