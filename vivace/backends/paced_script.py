"""The script of the paced backend: which answer a conversation gets. Its keys are described in docs/paced.md."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from vivace.backends.base import Job
from vivace.backends.config import checked
from vivace.backends.paced_tokens import DEFAULT_TOKENS
from vivace.errors import UsageError
from vivace.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OtherItem,
    Reasoning,
    item_text,
)


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that an answer does; exactly one of the keys of :data:`DOES`, and the others that go with it."""

    text: str | None = None
    reasoning: str | None = None
    tokens: int | None = None
    """So many tokens of filler."""
    group: str | int | None = None
    """The text of this group of the rule's expressions."""
    call: str | None = None
    """The name of a tool, flat or as the client calls it."""
    delay: float | None = None
    """Seconds in which nothing comes."""
    error: str | None = None
    """End with an error of this code."""
    drop: bool | None = None
    """End as if the connection to the model were lost."""
    hang: bool | None = None
    """Say nothing more until stopped."""
    namespace: str | None = None
    arguments: dict[str, Any] | str | None = None
    """A table, or text that goes out as it is."""
    input: str | None = None
    """The free text of a custom tool."""
    call_id: str | None = None
    pause: float | None = None
    """Seconds per token, instead of the backend's rate."""
    message: str = ""
    retry_after: float = 0.0


DOES = ("text", "reasoning", "tokens", "group", "call", "delay", "error", "drop", "hang")
_GOES_WITH = {
    "namespace": ("call",), "arguments": ("call",), "input": ("call",), "call_id": ("call",),
    "pause": ("text", "reasoning", "tokens", "group", "call"), "message": ("error", "drop"), "retry_after": ("error",),
}  # fmt: skip


class When(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a conversation must be; everything that is said must hold. Expressions are searched, not matched whole."""

    user: str | None = None
    """In the last user message, where it came after the last answer."""
    output: str | None = None
    """In the last tool output, where it came after the last answer."""
    said: str | None = None
    """In any user message of the conversation."""
    model: str | None = None
    turn: int | list[int] | None = None
    """1 for the first answer of a conversation, one more with each answer already in it."""
    tool: str | None = None
    """Offered, by its flat or public name."""
    item: str | None = None
    """The conversation has an item of this type."""
    prefill_only: bool | None = None


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first rule that fits and is not used up answers."""

    steps: list[Step]
    when: When = When()
    name: str = ""
    times: int | None = None
    """How often it may answer; None is always."""
    prefill: float | None = None
    """Seconds until the prompt is read, instead of what its new tokens take."""
    expand: bool = False
    """Put groups of the expressions for ``${name}`` and ``${1}`` in every text of the steps."""
    end: Literal["stop", "length", "time"] = "stop"


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules in order. What no rule fits is answered with :data:`DEFAULT`."""

    rules: list[Rule] = field(default_factory=list)


DEFAULT = Rule(steps=[Step(tokens=DEFAULT_TOKENS)], name="default")
NOTHING = Rule(steps=[], name="prefill")


def load_script(path: Path) -> Script:
    """Read a TOML or JSON script. Raises :class:`UsageError` that says what is wrong and where."""
    try:
        data = path.read_text(encoding="utf-8")
        value = json.loads(data) if path.suffix == ".json" else tomllib.loads(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", param="script") from error
    except ValueError as error:  # not UTF-8, JSON or TOML
        raise UsageError(f"{path}: {error}", param="script") from error
    return script_of(value, str(path))


def script_of(value: Any, where: str = "script") -> Script:
    """A script from tables; errors as for :func:`load_script`."""
    script = checked(value, Script, where)
    for number, rule in enumerate(script.rules):
        _check(rule, f"{where}: rules[{number}]" + (f" ({rule.name})" if rule.name else ""))
    return script


def _check(rule: Rule, where: str) -> None:
    groups: set[str] = set()
    for key in ("user", "output", "said", "model"):
        if (pattern := getattr(rule.when, key)) is not None:
            try:
                found = re.compile(pattern)
            except re.error as error:
                raise UsageError(f"{where}.when.{key} is no regular expression: {error}.", param=key) from error
            groups |= {str(n) for n in range(found.groups + 1)} | set(found.groupindex)
    if rule.times is not None and rule.times < 1:
        raise UsageError(f"{where}.times is {rule.times}; it takes 1 or more.", param="times")
    for number, step in enumerate(rule.steps):
        _check_step(step, f"{where}.steps[{number}]")
        wanted = [str(step.group)] if step.group is not None else []
        wanted += [m for text in _texts(step) for m in _GROUP.findall(text)] if rule.expand else []
        for name in wanted:
            if name not in groups:
                raise UsageError(f"{where}.steps[{number}] wants group {name!r}, which no expression of the rule has.")


def _check_step(step: Step, where: str) -> None:
    does = [key for key in DOES if getattr(step, key) not in (None, False)]
    if len(does) != 1:
        raise UsageError(f"{where} does {' and '.join(does) or 'nothing'}; it takes exactly one of {', '.join(DOES)}.")
    for key, needed in _GOES_WITH.items():
        if getattr(step, key) not in (None, "", 0.0) and does[0] not in needed:
            raise UsageError(f"{where}: {key!r} goes with {' or '.join(needed)}, not with {does[0]!r}.", param=key)
    if step.arguments is not None and step.input is not None:
        raise UsageError(f"{where} has 'arguments' and 'input'; a call takes one of them.")
    for key in ("tokens", "delay", "pause", "retry_after"):
        if (getattr(step, key) or 0) < 0:
            raise UsageError(f"{where}.{key} is {getattr(step, key)}; it takes 0 or more.", param=key)


class Chooser:
    """Plays a script: finds the rule of each job and remembers which are used up."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._used = [0] * len(script.rules)

    def choose(self, job: Job) -> tuple[Rule, list[Step]]:
        """The rule of a job and its steps, groups filled in. A job that only prefills says nothing by default."""
        scene = Scene(job)
        for number, rule in enumerate(self.script.rules):
            if rule.times is not None and self._used[number] >= rule.times:
                continue
            groups = scene.fits(rule.when)
            if groups is not None:
                self._used[number] += 1
                return rule, [_filled(step, rule, groups) for step in rule.steps]
        return (NOTHING, []) if job.prefill_only else (DEFAULT, DEFAULT.steps)


class Scene:
    """What rules can ask about a job, found once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.asked: list[Item] = job.request.input if isinstance(job.request.input, list) else []
        """What the client sent; orders to the service, such as a compaction trigger, are in no prompt."""
        new = list(_since_last_answer(job.items))
        self.user = next((item.text for item in new if _is_user(item)), None)  # type: ignore[union-attr]
        self.output = next(
            (item_text(item) for item in new if isinstance(item, FunctionCallOutput | CustomToolCallOutput)), None
        )

    def fits(self, when: When) -> dict[str, str] | None:
        """The groups of the rule's expressions where it fits, else None."""
        request = self.job.request
        if when.prefill_only is not None and when.prefill_only != self.job.prefill_only:
            return None
        if when.prefill_only is None and self.job.prefill_only:
            return None
        if when.turn is not None and self.turn not in ([when.turn] if isinstance(when.turn, int) else when.turn):
            return None
        if when.tool is not None and all(when.tool not in (t.name, t.public_name) for t in self.job.tools.tools):
            return None
        if when.item is not None and all(when.item != _type(item) for item in (*self.job.items, *self.asked)):
            return None
        groups: dict[str, str] = {}
        if when.model is None and when.said is None and when.output is None and when.user is None:
            return groups
        for pattern, texts in (
            (when.model, [request.model]), (when.said, self.said if when.said is not None else []),
            (when.output, [self.output]), (when.user, [self.user]),
        ):  # fmt: skip
            if pattern is None:
                continue
            found = next((m for text in texts if text is not None and (m := re.search(pattern, text))), None)
            if found is None:
                return None
            groups |= {str(n): text or "" for n, text in enumerate((found[0], *found.groups()))}
            groups |= {name: text or "" for name, text in found.groupdict().items()}
        return groups

    @cached_property
    def said(self) -> list[str]:
        """Everything that the user said; a whole conversation is read for it."""
        return [item.text for item in self.job.items if isinstance(item, Message) and item.role == "user"]

    @cached_property
    def turn(self) -> int:
        made = [_is_answer(item) for item in self.job.items]
        return 1 + sum(here and not before for before, here in zip([False, *made], made, strict=False))


_GROUP = re.compile(r"\$\{(\w+)\}")


def _filled(step: Step, rule: Rule, groups: dict[str, str]) -> Step:
    if step.group is not None:
        step = msgspec.structs.replace(step, text=groups[str(step.group)], group=None)
    if not rule.expand:
        return step

    def fill(value: Any) -> Any:
        match value:
            case str():
                return _GROUP.sub(lambda found: groups[found[1]], value)
            case dict():
                return {key: fill(inner) for key, inner in value.items()}
            case list():
                return [fill(inner) for inner in value]
            case _:
                return value

    return msgspec.structs.replace(step, **{key: fill(getattr(step, key)) for key in step.__struct_fields__})


def _texts(step: Step) -> Iterator[str]:
    """Every text of a step in which groups can stand."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                yield from walk(inner)

    for key in step.__struct_fields__:
        yield from walk(getattr(step, key))


def _since_last_answer(items: list[Item]) -> Iterator[Item]:
    """Newest first."""
    for item in reversed(items):
        if _is_answer(item):
            return
        yield item


def _is_answer(item: Item) -> bool:
    match item:
        case Message():
            return item.role == "assistant"
        case Reasoning() | FunctionCall() | CustomToolCall():
            return True
        case _:
            return False


def _is_user(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def _type(item: Item) -> str:
    if isinstance(item, OtherItem):
        return item.type
    return str(type(item).__struct_config__.tag)
