"""The families' ways to write calls that are JSON between marks: Hermes and Qwen, Llama 3, Mistral, DeepSeek."""

from __future__ import annotations

import re

from vivace.dialects.calls import Call, json_call
from vivace.dialects.reader import Parse, Reader
from vivace.dialects.syntax import CallSyntax, Rules, Written, joined
from vivace.dialects.tools import FlatTool

_NAME = re.compile(r"[A-Za-z0-9_.:/-]")
_ID = re.compile(r"[A-Za-z0-9_-]")


class JsonSyntax(CallSyntax):
    """A call is one JSON object; ``head`` and ``tail`` are what stands around the arguments."""

    head = '{{"name": "{}", "arguments": '
    tail = "}"

    def body(self, call: Written) -> str:
        return self.head.format(call.name) + (_wrapped(call.text) if call.raw else call.text) + self.tail

    def body_rule(self, tool: FlatTool, rules: Rules) -> str:
        head = rules.mark(self.head.format(tool.name))
        return joined(head, rules.json(tool.parameters), rules.literal(self.tail), rules.mark(self.after))

    def example(self) -> str:
        head = self.head.format("TOOL")
        return f"{self.begin}{self.before}{head}{{...}}{self.tail}{self.after}{self.finish}"


class Hermes(JsonSyntax):
    """Nous Research's Hermes format, which Qwen 2.5 and 3 and many others were trained on.

    A custom tool is called with free text, which no Hermes template knows: its name instead of the JSON object, and the
    text on the lines after it::

        <tool_call>apply_patch
        any text
        </tool_call>

    The line breaks before and after the text belong to the marks. Text that holds the closing mark on a line of its own
    is written as the JSON of a function with one string.
    """

    opening = "<tool_call>"
    before = "<tool_call>"
    after = "</tool_call>"
    between = "\n"
    marks = ("\n<tool_call>", "<tool_call>")
    tokens = ("<tool_call>", "</tool_call>")
    head = '\n{{"name": "{}", "arguments": '
    tail = "}\n"

    def body(self, call: Written) -> str:
        if call.raw and f"\n{self.after}" not in f"\n{call.text}":
            return f"{call.name}\n{call.text}\n"
        return super().body(call)

    def body_rule(self, tool: FlatTool, rules: Rules) -> str:
        if tool.kind != "custom":
            return super().body_rule(tool, rules)
        return joined(rules.literal(f"{tool.name}\n"), rules.free(tool, f"\n{self.after}"))

    def free_hint(self, tool: FlatTool) -> str:
        return f"Call it with free text instead of JSON:\n{self.before}{tool.name}\nTEXT\n{self.after}"

    def calls(self, mark: str, reader: Reader, call: Call) -> Parse[bool]:
        yield from reader.blanks()
        if (yield from reader.peek()) != "{":
            return (yield from self._free(reader, call))
        if not (yield from json_call(reader, call)):
            return False
        yield from reader.blanks()
        yield from reader.take("}")  # Small models close one bracket too many.
        yield from reader.blanks()
        if (yield from reader.take(self.after)):
            if call.filled and not call.ended:
                call.whole()  # One bracket too few, and the call is closed all the same.
            reader.accept()
        return True

    def _free(self, reader: Reader, call: Call) -> Parse[bool]:
        name = yield from reader.matching(_NAME)
        if not name or not call.named(name) or call.tool is None:
            return False
        if not call.custom:  # A function that is called as custom tools are, its arguments where their text would be.
            yield from reader.blanks()
            if (yield from reader.peek()) != "{":
                return False
            yield from told(reader, call)
            yield from reader.blanks()
            yield from reader.take(self.after)
            reader.accept()
            return True
        if not (yield from reader.take("\n")):
            return False
        reader.accept()
        call.begin(raw=True)
        if (yield from reader.take(self.after)):
            mark = self.after
        else:
            mark = yield from reader.until((f"\n{self.after}",), call.argument)
        if mark:
            call.whole()
            reader.accept()
        return True


class Llama(JsonSyntax):
    """Llama 3: the object alone, or after ``<|python_tag|>``; several are separated by semicolons."""

    between = "; "
    marks = ("<|python_tag|>",)
    tokens = ("<|python_tag|>",)
    separator = ""
    head = '{{"name": "{}", "parameters": '

    def calls(self, mark: str, reader: Reader, call: Call) -> Parse[bool]:
        if not (yield from json_call(reader, call)):
            return False
        while True:
            yield from reader.blanks()
            if not (yield from reader.take(";")):
                return True
            if not (yield from json_call(reader, Call(call.table, call.sink))):
                return True


class Mistral(JsonSyntax):
    """``[TOOL_CALLS]`` and a list of objects or, since 2025, a name, ``[ARGS]`` and the arguments."""

    opening = "[TOOL_CALLS]"
    begin = "[TOOL_CALLS]["
    between = ", "
    finish = "]"
    marks = ("[TOOL_CALLS]",)
    tokens = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    separator = ""

    def calls(self, mark: str, reader: Reader, call: Call) -> Parse[bool]:
        yield from reader.blanks()
        if not (yield from reader.take("[")):
            return (yield from self._named(reader, call))
        if not (yield from json_call(reader, call)):
            return False
        while True:
            yield from reader.blanks()
            if (yield from reader.take(",", "]")) != ",":
                return True
            if not (yield from json_call(reader, Call(call.table, call.sink))):
                return True

    def _named(self, reader: Reader, call: Call) -> Parse[bool]:
        name = yield from reader.matching(_NAME)
        if (yield from reader.take("[CALL_ID]")):
            yield from reader.matching(_ID)
        arguments = yield from reader.take("[ARGS]")
        if not arguments and (yield from reader.peek()) != "{":
            return False
        if not call.named(name):
            return False
        return (yield from told(reader, call))


class DeepSeek(JsonSyntax):
    """DeepSeek V3 and R1: ``function``, the name and a fenced object; since V3.1 the name and the object."""

    opening = "<｜tool▁calls▁begin｜>"
    begin = opening
    before = "<｜tool▁call▁begin｜>"
    after = "<｜tool▁call▁end｜>"
    finish = "<｜tool▁calls▁end｜>"
    between = "\n"
    marks = (begin, before)
    tokens = (begin, before, after, finish, "<｜tool▁sep｜>")
    separator = ""
    head = "function<｜tool▁sep｜>{}\n```json\n"
    tail = "\n```"

    def calls(self, mark: str, reader: Reader, call: Call) -> Parse[bool]:
        if mark == self.begin:
            yield from reader.blanks()
            if not (yield from reader.take(self.before)):
                return False
        first = yield from reader.matching(_NAME)
        if not first or not (yield from reader.take("<｜tool▁sep｜>")):
            return False
        yield from reader.blanks()
        name = first
        if (yield from reader.peek()) not in ("{", '"'):
            name = yield from reader.matching(_NAME)
            yield from reader.blanks()
            yield from reader.take("```json")
            yield from reader.blanks()
        if not call.named(name):
            return False
        yield from told(reader, call)
        yield from reader.blanks()
        yield from reader.take("```")
        yield from reader.blanks()
        yield from reader.take(self.after)
        yield from reader.blanks()
        yield from reader.take(self.finish)
        reader.accept()
        return True


def told(reader: Reader, call: Call) -> Parse[bool]:
    """Tell of a call whose name is known and whose arguments come next."""
    yield from reader.blanks()
    reader.accept()
    call.begin()
    if (yield from call.arguments(reader)):
        call.whole()
    return True


def _wrapped(text: str) -> str:
    """The text of a custom tool as the arguments of a function."""
    import json

    return json.dumps({"input": text}, ensure_ascii=False)
