"""Opens the agent's conversations for a face, all on one service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.listing import Summary, conversations, conversations_folder, find
from vivace.protocol.contracts import Service
from vivace.ui.contract import Choice, Listener

if TYPE_CHECKING:
    from vivace.agent.turns.agent import Agent
    from vivace.agent.turns.options import AgentOptions


class Agents:
    """A :class:`vivace.ui.contract.House`. ``make`` is called for the first conversation only.

    ``deep_model`` is the model of deep turns where that is another one; ``models`` names those that can be asked.
    """

    def __init__(
        self,
        make: Callable[[], Service],
        options: AgentOptions,
        *,
        deep_model: str = "",
        models: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._make = make
        self._options = options
        self._deep_model = deep_model
        self._models = models
        self._service: Service | None = None

    def open(self, choice: Choice, listener: Listener) -> Agent:
        import msgspec

        from vivace.agent.turns.agent import Agent

        if self._service is None:
            self._service = self._make()
        options = msgspec.structs.replace(
            self._options,
            approvals=choice.approvals,
            propose=choice.propose,
            candidates=self._options.candidates if choice.candidates is None else choice.candidates,
        )
        if choice.conversation:
            return Agent.open(
                choice.conversation,
                self._service,
                choice.root,
                model=choice.model,
                deep_model=self._deep_model,
                mode=choice.mode,
                options=options,
                on_event=listener,
            )
        return Agent(
            self._service,
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

    def _folder(self, root: Path) -> Path:
        return conversations_folder(root.resolve(), self._options.state_dir)
