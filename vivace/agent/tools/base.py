"""What a tool is: a name, a schema, and a call that is checked, approved, run, and answered within a budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import Struct

from vivace.agent.approvals.actions import Action, Consult, nobody
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.sandbox.base import NoSandbox, Sandbox
from vivace.agent.sandbox.policy import Policy
from vivace.agent.tools.clip import Count, estimate
from vivace.agent.tools.processes import Processes
from vivace.agent.tools.seen import Seen
from vivace.errors import UsageError, VivaceError

BUDGET = 4000
"""Tokens of one answer to the model, unless the context says otherwise."""


class ToolResult(Struct):
    """What a call came to. ``text`` is for the model, ``data`` (JSON values) for faces, ``changed`` names files."""

    text: str
    ok: bool = True
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    changed: tuple[str, ...] = ()


class Option(Struct, frozen=True):
    """One answer that a question offers."""

    label: str
    detail: str = ""


class Question(Struct, frozen=True):
    """A question of the model to the user; any other answer than the options may be given too."""

    text: str
    options: tuple[Option, ...] = ()


class Assignment(Struct, frozen=True):
    """Work that the model hands to a background worker."""

    task: str
    paths: tuple[str, ...] = ()
    role: str = ""


async def no_answer(question: Question) -> str:
    """There is nobody to ask."""
    raise VivaceError(
        "nobody is here to answer", hint="Decide by yourself and say what you assumed.", code="nobody_there"
    )


async def no_workers(assignment: Assignment) -> str:
    """This conversation has no background workers."""
    raise VivaceError("there are no background workers here", hint="Do it yourself.", code="no_workers")


async def _unguarded(what: str) -> None:
    """No checkpoints are taken."""


@dataclass
class Context:
    """What the tools of one conversation share. ``root`` is the workspace, a real path."""

    root: Path
    approvals: Approvals
    policy: Policy
    sandbox: Sandbox = field(default_factory=NoSandbox)
    processes: Processes = field(default_factory=Processes)
    seen: Seen = field(default_factory=Seen)
    count: Count = estimate
    budget: int = BUDGET
    consult: Consult = nobody
    """Asks the user for an approval."""
    question: Callable[[Question], Awaitable[str]] = no_answer
    delegate: Callable[[Assignment], Awaitable[str]] = no_workers
    on_output: Callable[[str], None] = lambda text: None
    """Output of the command in front, as it comes."""
    on_plan: Callable[[list[dict[str, str]]], None] = lambda steps: None
    before_change: Callable[[str], Awaitable[None]] = _unguarded
    """Called before a command or an edit runs, when it is approved: the place of a checkpoint."""


A = TypeVar("A", bound=Struct)


class Tool(ABC, Generic[A]):
    """One tool. ``arguments`` is a struct; the model sees its JSON schema."""

    name: str
    description: str
    arguments: ClassVar[type[Struct]]
    changes: bool = False
    """It may change files: a checkpoint comes before it."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema of the arguments, in one piece."""
        return schema_of(self.arguments)

    def check(self, raw: Mapping[str, Any]) -> A:
        """The arguments, typed. Raises :class:`UsageError` (``bad_arguments``) that says which is wrong and how."""
        try:
            return msgspec.convert(dict(raw), self.arguments, strict=False)  # type: ignore[return-value]
        except msgspec.ValidationError as error:
            wanted = ", ".join(f"{f.name}{'' if f.required else '?'}" for f in msgspec.structs.fields(self.arguments))
            raise UsageError(
                f"{self.name}: {error}", hint=f"It takes: {wanted}.", code="bad_arguments", param=self.name
            ) from None

    def action(self, arguments: A, context: Context) -> Action | None:
        """What the user may have to approve; ``None`` when nothing. Raises like :meth:`run`."""
        return None

    @abstractmethod
    async def run(self, arguments: A, context: Context) -> ToolResult:
        """Do it. Raises :class:`VivaceError` for what the model can understand and act on."""


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """A JSON schema without references: small models and some servers do not follow them."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    resolved = _resolved(schema, components)
    assert isinstance(resolved, dict)
    return {key: resolved[key] for key in ("type", "properties", "required") if key in resolved} | {
        "additionalProperties": False
    }


def _resolved(schema: object, components: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_resolved(part, components) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(components[schema["$ref"]], components)
    # A title repeats the name, and an empty default is what leaving it out means anyway.
    kept = {k: v for k, v in schema.items() if k != "title" and not (k == "default" and v in ("", False, None, []))}
    return {key: _resolved(value, components) for key, value in kept.items()}
