"""Opens the agent's conversations for a face, all on one service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.listing import Summary, conversations, conversations_folder, find
from vivace.agent.turns.events import Noted
from vivace.protocol.contracts import Service
from vivace.ui.contract import Choice, Listener

if TYPE_CHECKING:
    from vivace.agent.turns.agent import Agent
    from vivace.agent.turns.options import AgentOptions


class Agents:
    """A :class:`vivace.ui.contract.House`. ``make`` is called for the first conversation only.

    ``deep_model`` is the model of deep turns where that is another one; ``models`` names those that can be asked, and
    ``known`` raises for one that cannot be. Without it the service is asked, which may have to load it.
    """

    def __init__(
        self,
        make: Callable[[], Service],
        options: AgentOptions,
        *,
        deep_model: str = "",
        models: Callable[[], Sequence[str]] = tuple,
        known: Callable[[str], None] | None = None,
    ) -> None:
        self._make = make
        self._options = options
        self._deep_model = deep_model
        self._models = models
        self._known = known
        self._service: Service | None = None
        self._listener: Listener | None = None

    async def check(self, choice: Choice) -> None:
        """Raises :class:`vivace.errors.VivaceError` for a model that cannot be asked, before anything is made."""
        for model in dict.fromkeys([choice.model, *choice.roles.values(), *choice.race_models]):
            if self._known is not None:
                self._known(model)
            else:
                await self._open().open(model)

    def tell(self, text: str) -> None:
        """What the user should know of the service, said in the conversation that was opened last."""
        if self._listener is not None:
            self._listener(Noted(text=text, level="warning"))

    def open(self, choice: Choice, listener: Listener) -> Agent:
        import msgspec

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
                model=choice.model,
                deep_model=self._deep_model,
                mode=choice.mode,
                options=options,
                on_event=listener,
            )
        return Agent(
            service,
            choice.root,
            model=choice.model,
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
