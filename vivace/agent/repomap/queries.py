"""What defines a name and what mentions one, per language, as tree-sitter queries."""

from __future__ import annotations

_SCRIPT = """
(function_declaration name: (_) @name) @def
(generator_function_declaration name: (_) @name) @def
(class_declaration name: (_) @name) @def
(method_definition name: (_) @name) @def
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (class)]) @def
"""
_TYPED = """
(abstract_class_declaration name: (_) @name) @def
(interface_declaration name: (_) @name) @def
(type_alias_declaration name: (_) @name) @def
(enum_declaration name: (_) @name) @def
"""
_C = """
(function_definition declarator: (function_declarator declarator: (_) @name)) @def
(function_definition declarator: (_ declarator: (function_declarator declarator: (_) @name))) @def
(struct_specifier name: (_) @name body: (_)) @def
(enum_specifier name: (_) @name body: (_)) @def
(type_definition declarator: (type_identifier) @name) @def
(preproc_function_def name: (_) @name) @def
"""

DEFINITIONS = {
    "javascript": _SCRIPT,
    "typescript": _SCRIPT + _TYPED,
    "tsx": _SCRIPT + _TYPED,
    "go": """
(function_declaration name: (_) @name) @def
(method_declaration name: (_) @name) @def
(type_spec name: (_) @name) @def
""",
    "rust": """
(function_item name: (_) @name) @def
(function_signature_item name: (_) @name) @def
(struct_item name: (_) @name) @def
(enum_item name: (_) @name) @def
(union_item name: (_) @name) @def
(trait_item name: (_) @name) @def
(type_item name: (_) @name) @def
(mod_item name: (_) @name body: (_)) @def
(macro_definition name: (_) @name) @def
(impl_item type: (_) @name) @def
""",
    "java": """
(class_declaration name: (_) @name) @def
(interface_declaration name: (_) @name) @def
(enum_declaration name: (_) @name) @def
(record_declaration name: (_) @name) @def
(annotation_type_declaration name: (_) @name) @def
(method_declaration name: (_) @name) @def
(constructor_declaration name: (_) @name) @def
""",
    "c": _C,
    "cpp": _C + "(class_specifier name: (_) @name body: (_)) @def\n(namespace_definition name: (_) @name) @def\n",
    "bash": "(function_definition name: (_) @name) @def",
}

REFERENCES = {
    "javascript": "[(identifier) (property_identifier)] @ref",
    "typescript": "[(identifier) (property_identifier) (type_identifier)] @ref",
    "tsx": "[(identifier) (property_identifier) (type_identifier)] @ref",
    "go": "[(identifier) (field_identifier) (type_identifier)] @ref",
    "rust": "[(identifier) (field_identifier) (type_identifier)] @ref",
    "java": "[(identifier) (type_identifier)] @ref",
    "c": "[(identifier) (field_identifier) (type_identifier)] @ref",
    "cpp": "[(identifier) (field_identifier) (type_identifier) (namespace_identifier)] @ref",
    "bash": "(command_name (word) @ref)",
}
