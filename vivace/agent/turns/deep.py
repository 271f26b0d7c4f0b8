"""The deep mode: ask, run the calls that are whole, show the results, and on, until the model has no more to do.

A steer is taken at the next tool boundary: calls that were not begun are answered as not run, and the message follows
their outputs. Every call has an output whatever happens, so that the next request is always a sound one.
"""

from __future__ import annotations

import asyncio
import json
import time

from vivace.agent.languages import language_of
from vivace.agent.sessions.entries import Items, Note, ToolCall, ToolResult, User
from vivace.agent.tools.base import ToolResult as Result
from vivace.agent.tools.watchdog import Notice, Watchdog
from vivace.agent.turns import prompts
from vivace.agent.turns.answer import Answer, listen
from vivace.agent.turns.compaction import compact, too_full
from vivace.agent.turns.desk import Chain, Desk, Outcome
from vivace.agent.turns.events import Said, Thought, ToolBegan, ToolEnded
from vivace.agent.turns.history import INTERRUPTED, NOT_RUN, history
from vivace.agent.turns.kept_edits import KeptEdit
from vivace.agent.turns.limits import Spent
from vivace.agent.turns.metering import Metered
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import FunctionCall
from vivace.protocol.requests import ResponseRequest

TRIES = 4
"""Requests for one step: a server that is busy or gone may come back."""
PAUSES = (0.5, 2.0, 8.0)
"""Seconds before each further one."""
LASTING = frozenset(
    {"invalid_request_error", "invalid_value", "model_not_found", "insufficient_quota", "invalid_api_key"}
)
"""Failures that asking again does not mend."""
CUT = "Your answer was cut off; nothing of it that was not whole was done. Go on, in smaller steps."


class Deep:
    """One deep turn."""

    def __init__(self, desk: Desk, spent: Spent) -> None:
        self.desk = desk
        self.spent = spent
        self.watchdog = Watchdog()
        self.model = desk.models.of("deep")
        base = f"{prompts.DEEP}\n\n{prompts.READ_ONLY}" if desk.only_reads else prompts.DEEP
        self.instructions = prompts.instructions(base, desk.root)
        self.changed: dict[str, None] = {}
        self.called = False

    async def run(self, check: str = "") -> Outcome:
        """To the end. ``check`` is the diff of a quick answer that is to be looked at."""
        desk = self.desk
        card = await desk.card(self.model)
        service = desk.metered(self.spent, card)
        desk.context.budget = max(400, min(4000, card.context_window // 8))
        if check:
            desk.conversation.append(Note(f"{prompts.CHECK}\n{check}"))
        await show_map(desk, card)
        try:
            while True:
                if over := self.spent.exceeded():
                    return self._over("limit", f"{over} is used up")
                if too_full(desk, card, service.meter.context):
                    await compact(desk, self.model, service, self.watchdog)
                    service.meter.context = 0
                self._tell_news()
                answer = await self._step(service, card)
                notice = None if answer.calls or answer.text.strip() else self.watchdog.empty()
                if notice is not None and notice.level == "stop":
                    return self._over("failed", notice.text)
                nudges = [notice.text] if notice is not None else [CUT] if answer.status == "incomplete" else []
                for call in answer.calls:
                    found = await self._call(call, nudges)
                    if found is not None and found.level == "stop":
                        return self._over("limit", found.text)
                # Behind all outputs: a note between two of them would leave the later calls without.
                desk.conversation.append_all([Note(nudge) for nudge in nudges])
                steered = desk.inbox.take_steers()
                desk.asked = "\n\n".join([desk.asked, *(letter.text.strip() for letter in steered)])
                if not answer.calls and not steered and notice is None and answer.status == "completed":
                    return self._over("done", "")
        finally:
            desk.call = ""
            desk.record_usage(service)

    def _tell_news(self) -> None:
        """What happened beside the turn; here, where no call waits for its output."""
        news, self.desk.news = self.desk.news, []
        self.desk.conversation.append_all([Note(text) for text in news])

    async def _step(self, service: Metered, card: ModelCard) -> Answer:
        """One response. Raises :class:`VivaceError` when there is none to be had."""
        for again in range(TRIES):
            answer = Answer()
            try:
                await listen(
                    service,
                    self._request(card),
                    answer,
                    lambda text: self.desk.emit(Said(text=text)),
                    lambda text: self.desk.emit(Thought(text=text)),
                )
            except asyncio.CancelledError:
                self._keep(answer)
                raise
            if answer.status != "failed":
                self._keep(answer)
                return answer
            broken_chain, self.desk.chain = self.desk.chain is not None, None
            if answer.code == "context_length_exceeded":
                if not await compact(self.desk, self.model, service, self.watchdog):
                    break
            elif answer.code in LASTING and not broken_chain:
                break
            elif not broken_chain or answer.code != "previous_response_not_found":
                await asyncio.sleep(PAUSES[min(again, len(PAUSES) - 1)])
        raise VivaceError(f"The model does not answer: {answer.message}", code="generation_failed")

    def _request(self, card: ModelCard) -> ResponseRequest:
        """What is new behind the chain, or everything."""
        desk = self.desk
        instructions = self.instructions
        tools = desk.toolbox.describe()
        told = history(desk.conversation)
        chain = desk.chain
        new = None
        same = (self.model, instructions, tuple(desk.toolbox.tools))
        if chain is not None and (chain.model, chain.instructions, chain.tools) == same:
            new = told.after(chain.response)
        if not new:
            desk.chain = chain = None
        return ResponseRequest(
            model=self.model,
            input=new or told.items,
            instructions=instructions,
            previous_response_id=chain.response if chain is not None else None,
            tools=tools,
            store=False,
            prompt_cache_key=desk.conversation.id,
        )

    def _keep(self, answer: Answer) -> None:
        """Write down what was said; go on behind it only where the service and we mean the same by it."""
        kept = answer.kept()
        if kept:
            self.desk.conversation.append(Items(kept, answer.response))
        whole = answer.status == "completed" and bool(kept)
        self.desk.chain = (
            Chain(
                answer.response,
                self.model,
                self.instructions,
                tuple(self.desk.toolbox.tools),
            )
            if whole
            else None
        )

    async def _call(self, call: FunctionCall, nudges: list[str]) -> Notice | None:
        """Run one call and write its result down; what the model should be told besides goes to ``nudges``."""
        desk = self.desk
        if desk.inbox.steered:
            desk.conversation.append(ToolResult(call.call_id, NOT_RUN, ok=False))
            return None
        self.called = True
        desk.conversation.append(ToolCall(call.call_id, call.name, call.arguments))
        desk.emit(ToolBegan(call=call.call_id, name=call.name, brief=_brief(call)))
        desk.call, began = call.call_id, time.perf_counter()
        result = Result(INTERRUPTED, ok=False)
        try:
            result = await desk.toolbox.call(call.name, call.arguments, desk.context)
            if result.data.get("job"):
                desk.touched = None
            desk.touch(result.changed)
            self._keep_edit(result)
            if not result.changed:
                await desk.touch_by_call()
        finally:
            desk.guarded = None
            seconds = time.perf_counter() - began
            desk.conversation.append(ToolResult(call.call_id, result.text, result.ok, seconds))
            self.changed |= dict.fromkeys(result.changed)
            if isinstance(path := result.data.get("path"), str):
                desk.looked.pop(path, None)
                desk.looked[path] = None
            desk.emit(
                ToolEnded(
                    call=call.call_id, ok=result.ok, text=result.text, seconds=seconds, changed=tuple(result.changed)
                )
            )
        arguments = json.loads(call.arguments or "{}")
        nudges += self._rules_of(str(arguments.get("path", "")))
        notice = self.watchdog.observe(call.name, arguments, result)
        if notice is not None:
            hint = " Use rewrite: it makes the change from a description." if notice.level == "escalate" else ""
            nudges.append(notice.text + hint)
        return notice

    def _keep_edit(self, result: Result) -> None:
        """What one of the tools for editing has written."""
        data, desk = result.data, self.desk
        if not result.changed or "before" not in data:
            return
        edit = KeptEdit(
            time=time.time(),
            workspace=desk.measured.path.parent.name,
            conversation=desk.conversation.id,
            model=data.get("model", self.model),
            path=data["path"],
            language=language_of(data["path"], data["after"]),
            instruction=data.get("instruction", desk.asked),
            before=data["before"],
            after=data["after"],
            diff=data["diff"],
            accepted=True,
        )
        desk.own_edits([edit])

    def _rules_of(self, path: str) -> list[str]:
        """Rules of the folder of ``path`` that the model has not been told yet."""
        folder = path.rpartition("/")[0]
        if not folder or folder in self.desk.guided:
            return []
        self.desk.guided.add(folder)
        told = self.desk.guided_by
        found = [(name, text) for name, text in prompts.guides(self.desk.root, [folder]) if "/" in name]
        fresh = [f"Rules of the project ({name}):\n{text}" for name, text in found if name not in told]
        told |= {name for name, _ in found}
        return fresh

    def _over(self, status: str, reason: str) -> Outcome:
        if self.called or status == "failed":
            self.desk.measured.tool_use(self.model, well=status != "failed" and self.called)
        return Outcome(status, reason, list(self.changed))  # type: ignore[arg-type]


async def show_map(desk: Desk, card: ModelCard) -> None:
    """Where to look, once per context: after the message that begins it, so that what was said before stays."""
    if desk.whereabouts.shown:
        return
    users = [entry.data for entry in desk.conversation.path() if isinstance(entry.data, User)]
    task, files = (users[-1].text, users[-1].files) if users else ("", ())
    text = await desk.whereabouts.text(task, files, card.context_window, desk.context.count)
    if text:
        desk.conversation.append(Note(text))


def _brief(call: FunctionCall) -> str:
    arguments = json.loads(call.arguments or "{}")
    for key in ("path", "command", "job", "task", "pattern", "question", "query"):
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value.split("\n", 1)[0][:100]
    return ""
