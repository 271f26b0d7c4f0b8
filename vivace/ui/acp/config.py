"""What can be set about an open session: the protocol's config options, and its modes for editors that know only those.

An editor that knows config options leaves the modes alone, so the mode is among them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from acp.schema import (
    ConfigOptionUpdate,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)
from msgspec import Struct

from vivace.agent.turns.events import Mode
from vivace.errors import UsageError, did_you_mean
from vivace.ui.contract import MODES, Approving

if TYPE_CHECKING:
    from vivace.ui.acp.session import Session

T = TypeVar("T", bound=str)
APPROVALS: tuple[Approving, ...] = get_args(Approving)
OPTIONS = ("mode", "model", "approvals")
ABOUT_MODES: dict[Mode, str] = {
    "auto": "Chooses between the two by rules, and says why.",
    "fast": "One call, one minimal diff, no exploration.",
    "deep": "Plans, reads, edits, runs commands and tests, looks at results.",
}
ABOUT_APPROVALS: dict[Approving, str] = {
    "read-only": "Nothing is changed: edits are only shown.",
    "ask": "Edits and commands wait for a yes.",
    "auto": "Edits in the workspace and sandboxed commands pass, the rest is asked.",
    "full": "Everything passes but what destroys.",
}


class Setup(Struct):
    """What a session is set to."""

    mode: Mode
    model: str
    approvals: Approving


async def change(session: Session, option: str, value: str) -> None:
    """Set it, from the next turn on, approvals from the next action on.

    Raises :class:`UsageError` for an unknown option or value.
    """
    match option:
        case "mode":
            mode = _known(option, value, MODES)
            session.open.set_mode(mode)
            session.setup.mode = mode
        case "model":
            await session.house.check(msgspec.structs.replace(session.choice, model=value))
            session.open.set_model(value)
            session.setup.model = value
        case "approvals":
            approvals = _known(option, value, APPROVALS)
            session.open.set_approvals(approvals)
            session.setup.approvals = approvals
        case _:
            raise UsageError(
                f"there is no option {option}",
                hint=did_you_mean(option, list(OPTIONS)),
                code="unknown_option",
                param="configId",
            )


def options(setup: Setup, models: Sequence[str]) -> list[Any]:
    """All of them with their values, the most used first; no model where none can be named."""
    found = [_select("mode", "Mode", setup.mode, [(mode, ABOUT_MODES[mode]) for mode in MODES], "mode")]
    named = [model for model in dict.fromkeys([setup.model, *models]) if model]
    if named:
        found.append(_select("model", "Model", setup.model or named[0], [(name, None) for name in named], "model"))
    found.append(
        _select("approvals", "Approvals", setup.approvals, [(name, ABOUT_APPROVALS[name]) for name in APPROVALS])
    )
    return found


def changed(setup: Setup, models: Sequence[str]) -> ConfigOptionUpdate:
    """The update that tells an editor of values that it did not set itself."""
    return ConfigOptionUpdate(session_update="config_option_update", config_options=options(setup, models))


def modes(setup: Setup) -> SessionModeState:
    return SessionModeState(
        current_mode_id=setup.mode,
        available_modes=[SessionMode(id=mode, name=mode, description=ABOUT_MODES[mode]) for mode in MODES],
    )


def _select(
    name: str, label: str, value: str, values: Sequence[tuple[str, str | None]], category: Any = None
) -> SessionConfigOptionSelect:
    return SessionConfigOptionSelect(
        id=name,
        name=label,
        type="select",
        category=category,
        current_value=value,
        options=[SessionConfigSelectOption(value=key, name=key, description=about) for key, about in values],
    )


def _known(option: str, value: str, known: Sequence[T]) -> T:
    for one in known:
        if one == value:
            return one
    raise UsageError(
        f"{option} cannot be {value!r}", hint=did_you_mean(value, list(known)), code="unknown_value", param="value"
    )
