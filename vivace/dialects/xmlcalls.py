"""Qwen3-Coder's calls: a function element with one element for each parameter, and no JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from vivace.dialects.calls import Call
from vivace.dialects.reader import Parse, Reader
from vivace.dialects.syntax import CallSyntax, Rules, Written, joined
from vivace.dialects.tools import FlatTool

_NAME = re.compile(r"[^>\n<]")
_ENDS = ("\n</parameter>", "</parameter>")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


class QwenXml(CallSyntax):
    """``<tool_call>``, ``<function=NAME>``, ``<parameter=KEY>`` and the value on lines of its own.

    Arguments become JSON as they come: a parameter that the schema calls a string is streamed, others are read as
    JSON, and are strings where they are none. The free text of a custom tool is its ``input``, as it stands.
    """

    opening = "<tool_call>"
    before = "<tool_call>\n"
    after = "\n</tool_call>"
    between = "\n"
    marks = ("\n<tool_call>", "<tool_call>", "\n<function=", "<function=")
    tokens = ("<tool_call>", "</tool_call>")

    def calls(self, mark: str, reader: Reader, call: Call) -> Parse[bool]:
        if "<function=" not in mark:
            yield from reader.blanks()
            if not (yield from reader.take("<function=")):
                return False
        name = yield from reader.matching(_NAME)
        if not (yield from reader.take(">")) or not call.named(name.strip()):
            return False
        reader.accept()
        call.begin(raw=True)
        properties = call.tool.parameters.get("properties", {}) if call.tool else {}
        count = 0
        while True:
            yield from reader.blanks()
            if not (yield from reader.take("<parameter=")):
                break
            key = yield from reader.matching(_NAME)
            if not (yield from reader.take(">")):
                return True
            yield from reader.take("\n")
            reader.accept()
            if not call.custom:
                call.argument(("{" if not count else ", ") + json.dumps(key, ensure_ascii=False) + ": ")
            count += 1
            if not (yield from _value(reader, call, properties.get(key))):
                return True
        if (yield from reader.take("</function>")):
            if not call.custom:
                call.argument("}" if count else "{}")
            call.whole()
            reader.accept()
            yield from reader.blanks()
            if (yield from reader.take("</tool_call>")):
                reader.accept()
        return True

    def body(self, call: Written) -> str:
        values: dict[str, Any] = {"input": call.text} if call.raw else _object(call.text)
        inner = "".join(f"<parameter={key}>\n{_shown(value)}\n</parameter>\n" for key, value in values.items())
        return f"<function={call.name}>\n{inner}</function>"

    def body_rule(self, tool: FlatTool, rules: Rules) -> str:
        head = rules.literal(f"<function={tool.name}>\n")
        foot = joined(rules.literal("</function>"), rules.mark(self.after))
        if tool.kind == "custom":
            text = joined(rules.literal("<parameter=input>\n"), rules.free(tool, _ENDS[0]), rules.literal("\n"))
            return joined(head, text, foot)
        needed = tool.parameters.get("required") or []
        parts = []
        for key, schema in (tool.parameters.get("properties") or {}).items():
            one = joined(rules.literal(f"<parameter={key}>\n"), _value_rule(schema, rules), rules.literal("\n"))
            parts.append(one if key in needed else f"({one})?")
        return joined(head, *parts, foot)

    def example(self) -> str:
        inner = "<function=TOOL>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>"
        return f"{self.before}{inner}{self.after}"


def _value(reader: Reader, call: Call, schema: Any) -> Parse[bool]:
    """One parameter's value as JSON; False when it breaks off."""
    if call.custom:
        return bool((yield from reader.until(_ENDS, call.argument)))
    if _is_text(schema):
        call.argument('"')
        if not (yield from reader.until(_ENDS, lambda text: call.argument(_ESCAPED.sub(_escape, text)))):
            return False
        call.argument('"')
        reader.accept()
        return True
    texts: list[str] = []
    if not (yield from reader.until(_ENDS, texts.append)):
        return False
    text = "".join(texts)
    try:
        json.loads(text)
        call.argument(text.strip())
    except ValueError:
        call.argument(json.dumps(text, ensure_ascii=False))
    reader.accept()
    return True


def _is_text(schema: Any) -> bool:
    """Whether a parameter takes a string only."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind in ("string", ["string"])


def _value_rule(schema: Any, rules: Rules) -> str:
    if not _is_text(schema):
        return joined(rules.json(schema), rules.literal(_ENDS[0]))
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return f"({' | '.join(rules.literal(f'{value}{_ENDS[0]}') for value in schema['enum'])})"
    return rules.until(_ENDS[0])


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    return _ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": value}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
