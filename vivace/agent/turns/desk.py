"""What the turns of one conversation share: the service, the workspace with its tools and checkpoints, the user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from vivace.agent.approvals.actions import Consult, ReadFile, nobody
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.approvals.book import Book, book_path
from vivace.agent.mcp.config import ServerConfig, load_servers
from vivace.agent.mcp.tools import Servers
from vivace.agent.sandbox.base import NoSandbox, detect
from vivace.agent.sandbox.policy import policy_for
from vivace.agent.sessions import Conversation
from vivace.agent.tools.base import Assignment, Context, Tool, no_workers
from vivace.agent.tools.seen import Seen
from vivace.agent.tools.toolbox import Toolbox, standard_tools
from vivace.agent.tools.workers import Workers as WorkersTool
from vivace.agent.turns.asks import Asks
from vivace.agent.turns.events import Event, Mode, Noted, PlanChanged, Status, ToolOutput
from vivace.agent.turns.files import Files
from vivace.agent.turns.inbox import Inbox, Letter
from vivace.agent.turns.kept_edits import KeptEdit, KeptEdits
from vivace.agent.turns.limits import Spent
from vivace.agent.turns.measured import Measured
from vivace.agent.turns.metering import Meter, Metered
from vivace.agent.turns.options import AgentOptions
from vivace.agent.turns.prompts import edit_rules
from vivace.agent.turns.rewrite import Rewrite
from vivace.agent.turns.whereabouts import Whereabouts
from vivace.agent.workspace import SourceFile, Workspace
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard, Service


class Outcome(Struct):
    """How a turn ended. ``changed`` names the files that it changed."""

    status: Status
    reason: str = ""
    changed: list[str] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)


class Models(Struct):
    """The models of a conversation. ``deep`` is empty where one does everything."""

    fast: str
    deep: str = ""
    builder: str = ""
    """Does the work of deep turns in place of ``deep``."""
    acting: str = ""
    """Does all of the turn in front."""

    def of(self, mode: Mode) -> str:
        if self.acting:
            return self.acting
        return (self.builder or self.deep or self.fast) if mode == "deep" else self.fast

    @contextlib.contextmanager
    def all_by(self, model: str) -> Iterator[None]:
        """``model`` does everything meanwhile."""
        self.acting = model
        try:
            yield
        finally:
            self.acting = ""


class Chain(Struct, frozen=True):
    """The response that the next request follows, and what has to be the same for it to."""

    response: str
    model: str
    instructions: str
    tools: tuple[str, ...]


class Desk:
    """Made by :meth:`open`; closed with :meth:`close`."""

    def __init__(
        self,
        service: Service,
        root: Path,
        options: AgentOptions,
        models: Models,
        conversation: Conversation,
        files: Files,
        inbox: Inbox,
        emit: Callable[[Event], None],
    ) -> None:
        self.service = service
        self.root = root
        self.options = options
        self.models = models
        self.conversation = conversation
        self.files = files
        self.inbox = inbox
        self.emit = emit
        self.asks = Asks(emit)
        self.measured = Measured.of(root, options.state_dir)
        self.whereabouts = Whereabouts(root, options.cache_dir)
        self.kept_edits = KeptEdits(options.state_dir, enabled=options.keep_edits)
        self.call = ""
        """The tool call in front."""
        self.context = Context(root, Approvals(root, options.approvals), policy_for(root))
        self.toolbox = Toolbox(standard_tools())
        self.sandbox_reason = ""
        self.chain: Chain | None = None
        """What the service knows of the deep context; None makes the next request send everything."""
        self.looked: dict[str, None] = {}
        """Files that the model looked at, the latest last."""
        self.edits: list[KeptEdit] = []
        """What the last turn applied, and stands."""
        self.asked = ""
        """What the user wants of the turn in front, in his own words."""
        self.touched: dict[str, None] | None = {}
        """What the turn in front has changed itself; None once a job of it runs, which may change anything."""
        self.guarded: int | None = None
        """The checkpoint that was taken for the call in front."""
        self.guided: set[str] = set()
        """Folders whose rules the model was told."""
        self.guided_by: set[str] = set()
        """The files with those rules."""
        self.on_steer: Callable[[], None] = lambda: None
        """Called when a steer comes in while a turn runs: what is being made may be pre-empted."""
        self.in_turn: Service = service
        """For what tools ask of a model: it counts in the turn in front."""
        self.news: list[str] = []
        """What happened beside the turns, for the next request of a deep one."""
        self.workers: WorkersTool | None = None
        self._servers: Servers | None = None
        self._cards: dict[str, ModelCard] = {}
        self._unpriced: set[str] = set()
        """Models of unknown price that the user was told of."""

    async def begin(self) -> None:
        """Find the sandbox and start the MCP servers."""
        self.context = await self._context()
        tools: list[Tool[Any]] = list(standard_tools())
        if self.options.worker:
            tools = [tool for tool in tools if tool.name != "ask"]
        if self.workers is None:
            tools = [tool for tool in tools if tool.name != "delegate"]
        if configs := self._configs():
            self._servers = Servers(configs)
            tools += await self._servers.start(self.context.approvals, self.consult)
            for name, fault in self._servers.faults.items():
                self.emit(Noted(text=f"The MCP server {name} cannot be used: {fault}", level="warning"))
        if self.workers is not None:
            tools.append(self.workers)
        tools.append(Rewrite(lambda: self.in_turn, lambda: self.models.fast, self.rules_of))
        self.toolbox = Toolbox(tools)

    def _configs(self) -> dict[str, ServerConfig]:
        """The MCP servers that are wanted; what is wrong with one is told, and keeps nothing else from beginning."""
        if self.options.worker:
            return {}
        configs: dict[str, ServerConfig] = {}
        if self.options.mcp:
            found = load_servers(self.root, self.options.mcp_folder or self.root)
            configs = found.servers
            for fault in found.faults:
                self.emit(Noted(text=f"MCP: {fault}", level="warning"))
        return configs | {server.name: server for server in self.options.mcp_servers}

    async def close(self) -> None:
        await self.context.processes.close()
        if self._servers is not None:
            await self._servers.close()
        await self.files.settled()
        await self.whereabouts.close()

    @property
    def consult(self) -> Consult:
        return nobody if self.options.worker else self.asks.consult

    def set_delegate(self, delegate: Callable[[Assignment], object]) -> None:
        """Where the ``delegate`` tool goes."""

        async def call(assignment: Assignment) -> str:
            return str(await delegate(assignment))  # type: ignore[misc]

        self.context.delegate = call

    async def card(self, model: str) -> ModelCard:
        """The model, open. Raises :class:`VivaceError`."""
        if model not in self._cards:
            self._cards[model] = await self.service.open(model)
        return self._cards[model]

    def metered(self, spent: Spent, card: ModelCard) -> Metered:
        """The service for one turn, whose first sign of life delivers the messages that were taken."""
        if spent.limits.cost is not None and card.price is None and card.name not in self._unpriced:
            self._unpriced.add(card.name)
            text = f"Nobody says what {card.name} costs: the limit on the cost of a turn does not hold for it."
            self.emit(Noted(text=text, level="warning"))
        meter = Meter(spent, self.emit, card.context_window)
        priority = -1 if self.options.worker else 0
        beside = Meter(spent, lambda event: None)  # its answers are no part of the context that is shown
        self.in_turn = Metered(self.service, beside, self.inbox.delivered, self.card, priority)
        return Metered(self.service, meter, self.inbox.delivered, self.card, priority)

    async def read(self, paths: list[str]) -> list[SourceFile]:
        """Files for the model, none of which may be a secret that the user did not give. Raises like ``read_all``."""
        sources = Workspace(self.root).read_all(paths)
        for source in sources:
            await self.context.approvals.admit(ReadFile(source.name), self.consult)
        return sources

    def rules_of(self, card: ModelCard, source: SourceFile) -> str:
        """The project's own rules for an edit of this file by that model."""
        return edit_rules(self.root, source.name, card, self.context.count)

    def moved(self) -> None:
        """The conversation went somewhere else: the model has not seen what it saw."""
        self.chain = None
        self.context.seen = Seen()
        self.whereabouts.shown = False
        self.looked.clear()
        self.guided.clear()
        self.guided_by.clear()

    @property
    def only_reads(self) -> bool:
        """Nothing may be changed: edits are shown, and that is all."""
        return self.options.approvals == "read-only"

    def own_edits(self, edits: Sequence[KeptEdit]) -> None:
        """These were applied. What a background worker does in its copy nobody has accepted: it is not kept."""
        if self.options.worker:
            return
        word = "user" if self.options.propose or self.options.approvals == "ask" else "applied"
        for edit in edits:
            edit.accepted, edit.reason = True, word
            self.kept_edits.keep(edit)
        self.edits += edits

    def disown_edits(self, reason: str, edits: Sequence[KeptEdit] | None = None) -> None:
        """Of what the last turn applied, all or these ``edits`` do not stand: kept as refused."""
        for edit in self.edits if edits is None else [edit for edit in self.edits if edit in edits]:
            edit.accepted, edit.reason = False, reason
            self.kept_edits.keep(edit)
        self.edits = [edit for edit in self.edits if edit.accepted]

    def record_usage(self, metered: Metered) -> None:
        """What the turn took since it was recorded last, for the conversation's own books."""
        if (taken := metered.meter.spent.taken()) is not None:
            self.conversation.append(taken)

    async def _context(self) -> Context:
        options, policy = self.options, policy_for(self.root)
        sandbox, reason = NoSandbox(), "the sandbox is switched off; commands run with your own rights"
        if options.sandbox:
            found = await asyncio.to_thread(detect)
            sandbox, reason = found.sandbox, found.reason  # type: ignore[assignment]
        self.sandbox_reason = reason
        if not sandbox.holds:
            self.emit(Noted(text=f"No sandbox: {reason}.", level="warning"))
        context = Context(
            self.root,
            Approvals(self.root, options.approvals, Book(book_path(options.state_dir, self.root))),
            policy,
            sandbox,
            consult=self.consult,
            delegate=no_workers,
            on_output=lambda text: self.emit(ToolOutput(call=self.call, text=text)),
            on_plan=self._planned,
            before_change=self._before_change,
        )
        if not options.worker:
            context.question = self.asks.question
        return context

    def _planned(self, steps: list[dict[str, str]]) -> None:
        self.emit(PlanChanged(steps=tuple((step["step"], step.get("state", "pending")) for step in steps)))

    async def _before_change(self, label: str) -> None:
        self.guarded = (await self.files.take(label, "call")).id

    def touch(self, paths: Iterable[str]) -> None:
        """The turn in front has changed these."""
        if self.touched is not None:
            self.touched |= dict.fromkeys(paths)

    async def touch_by_call(self) -> None:
        """So has the call in front: whatever is not as its checkpoint has it."""
        number, self.guarded = self.guarded, None
        if number is not None and self.touched is not None:
            self.touch([change.path for change in await self.files.do(lambda: self.files.store.diff(number))])


def failed(error: VivaceError) -> Outcome:
    """The outcome of what could not go on."""
    return Outcome("failed", str(error))


def texts(letters: list[Letter]) -> str:
    """What the user said, in one piece."""
    return "\n\n".join(letter.text.strip() for letter in letters)
