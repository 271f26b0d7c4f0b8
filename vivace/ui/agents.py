"""Opens the agent's conversations for a face, all on one service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.listing import Summary, conversations, conversations_folder, find
from vivace.agent.turns.events import Noted
from vivace.errors import UsageError, did_you_mean
from vivace.protocol.contracts import Service
from vivace.ui.contract import Choice, Listener

if TYPE_CHECKING:
    from vivace.agent.turns.agent import Agent
    from vivace.agent.turns.options import AgentOptions


class Agents:
    """A :class:`vivace.ui.contract.House`. ``make`` is called for the first conversation only.

    ``deep_model`` is the model of deep turns where that is another one; ``models`` names those that can be asked, and
    ``known`` raises for one that cannot be. Without it the service is asked, which may have to load it. ``listed`` asks
    the service itself which it has, where only that knows. ``default`` is the model where none is named.
    """

    def __init__(
        self,
        make: Callable[[], Service],
        options: AgentOptions,
        *,
        deep_model: str = "",
        models: Callable[[], Sequence[str]] = tuple,
        known: Callable[[str], None] | None = None,
        listed: Callable[[Any], Awaitable[list[str]]] | None = None,
        default: str = "",
    ) -> None:
        self._make = make
        self._options = options
        self._deep_model = deep_model
        self._models = models
        self._known = known
        self._listed = listed
        self._default = default
        self._service: Service | None = None
        self._listener: Listener | None = None

    async def check(self, choice: Choice) -> None:
        """Raises :class:`vivace.errors.VivaceError` for a model that cannot be asked, before anything is made."""
        await self._settle(choice, self._open)

    async def settled(self, choice: Choice) -> Choice:
        """The same, for a face that runs in a loop of its own later; the choice with a model where it named none."""
        made: list[Service] = []

        def make() -> Service:
            made.append(self._make())
            return made[-1]

        try:
            await self._settle(choice, make)
        finally:
            for service in made:  # its connections are this loop's
                await service.close()
        return msgspec.structs.replace(choice, model=choice.model or self._default)

    async def _settle(self, choice: Choice, make: Callable[[], Service]) -> None:
        wanted = list(dict.fromkeys(filter(None, [choice.model, *choice.roles.values(), *choice.race_models])))
        if self._known is not None:
            for model in wanted or [self._default]:
                self._known(model)
            return
        service = make()
        if self._listed is None:
            for model in wanted:
                await service.open(model)
            return
        names = await self._listed(service)
        for model in wanted:
            if model not in names:
                raise UsageError(
                    f"The server has no model {model!r}",
                    hint=did_you_mean(model, names),
                    code="model_not_found",
                    param="model",
                )
        self._models = lambda: names
        if self._default not in names:
            self._default = names[0]

    def tell(self, text: str) -> None:
        """What the user should know of the service, said in the conversation that was opened last."""
        if self._listener is not None:
            self._listener(Noted(text=text, level="warning"))

    def open(self, choice: Choice, listener: Listener) -> Agent:
        from vivace.agent.turns.agent import Agent

        service = self._open()
        self._listener = listener
        options = msgspec.structs.replace(
            self._options,
            approvals=choice.approvals,
            propose=choice.propose,
            candidates=self._options.candidates if choice.candidates is None else choice.candidates,
            race_models=(*self._options.race_models, *choice.race_models),
            roles={**self._options.roles, **choice.roles},
            limits=self._options.limits if choice.limits is None else choice.limits,
            mcp_servers=choice.mcp_servers,
            max_workers=self._options.max_workers if choice.workers else 0,
        )
        if choice.conversation:
            return Agent.open(
                choice.conversation,
                service,
                choice.root,
                model=choice.model or self._default,
                deep_model=self._deep_model,
                mode=choice.mode,
                options=options,
                on_event=listener,
            )
        return Agent(
            service,
            choice.root,
            model=choice.model or self._default,
            deep_model=self._deep_model,
            mode=choice.mode,
            options=options,
            on_event=listener,
        )

    def conversations(self, root: Path) -> list[Summary]:
        return conversations(self._folder(root))

    def read(self, root: Path, name: str) -> Conversation:
        return Conversation.open(find(self._folder(root), name), write=False)

    def models(self) -> list[str]:
        return list(self._models())

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()

    def _open(self) -> Service:
        if self._service is None:
            self._service = self._make()
        return self._service

    def _folder(self, root: Path) -> Path:
        return conversations_folder(root.resolve(), self._options.state_dir)
