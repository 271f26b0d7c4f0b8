"""A context that gets too long is replaced by a summary, the facts that must not be lost, and its last steps.

The summary is the model's own; the facts are not left to it: what the user asked, which files were read (with the hash
of what was seen) and changed, what commands came to, and the text of the files that were looked at last, as far as
there is room. So nothing has to be read again only because the context was shortened. Without a summary (the model
failed, or its window is too small even for that) the facts stand alone: shortening never fails.
"""

from __future__ import annotations

import contextlib
import json

from vivace.agent.sessions.entries import Compaction, Entry, Items, ToolCall, ToolResult, User
from vivace.agent.tools.clip import estimate
from vivace.agent.tools.watchdog import Watchdog
from vivace.agent.turns import prompts
from vivace.agent.turns.answer import Answer, listen
from vivace.agent.turns.desk import Desk
from vivace.agent.turns.events import Noted
from vivace.agent.turns.history import history
from vivace.agent.turns.limits import Limits, Spent
from vivace.agent.turns.metering import Metered
from vivace.agent.workspace import Workspace
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import Item, Message, item_text
from vivace.protocol.requests import ResponseRequest

TAIL = 0.2
"""Share of the window that the last steps may take as they are."""
TEXTS = 0.15
"""Share of the window for the text of files that were looked at last."""
FACTS = 0.12
"""Share of the window for the facts; the oldest go first, the user's words last."""
SAID = 2000
"""Characters of each message of the user that are kept as they were."""


def size(items: list[Item]) -> int:
    """Tokens, estimated to the safe side."""
    return sum(estimate(item_text(item)) + 8 for item in items)


def too_full(desk: Desk, card: ModelCard, known: int) -> bool:
    """Whether the next request should find a shorter context. ``known``: tokens that the last response ended with."""
    told = history(desk.conversation)
    new = told.after(desk.chain.response) if desk.chain is not None and known else None
    tokens = known + size(new) if new is not None else size(told.items)
    return tokens > desk.options.compact_at * card.context_window


async def compact(desk: Desk, model: str, service: Metered | None = None, watchdog: Watchdog | None = None) -> bool:
    """Shorten the context; False when there is nothing to leave out."""
    card = await desk.card(model)
    service = service or desk.metered(Spent(Limits()), card)
    kept_from, left_out = _cut(desk, card)
    if not left_out:
        return False
    summary = await _summary(desk, model, card, service)
    facts = _facts(desk, left_out, int(card.context_window * FACTS))
    texts = _texts(desk, int(card.context_window * TEXTS))
    desk.conversation.append(Compaction(summary, (*facts, *texts), kept_from))
    desk.chain = None
    desk.whereabouts.shown = False
    desk.guided.clear()
    desk.guided_by.clear()
    if watchdog is not None:
        watchdog.compacted()
    after = size(history(desk.conversation).items)
    desk.emit(Noted(text=f"The context was shortened to about {after:,} tokens; facts and the last steps are kept."))
    return True


def _cut(desk: Desk, card: ModelCard) -> tuple[str, list[Entry]]:
    """Where the kept part begins (empty: nothing is kept), and the entries that go."""
    path = desk.conversation.path()
    last = next((n for n in range(len(path) - 1, -1, -1) if isinstance(path[n].data, Compaction)), -1)
    room, start = card.context_window * TAIL, len(path)
    for n in range(len(path) - 1, last, -1):
        room -= _weight(path[n])
        if room < 0:
            break
        if isinstance(path[n].data, Items | User):
            start = n
    before = next((entry.data for entry in path[last : last + 1] if isinstance(entry.data, Compaction)), None)
    first = 0
    if before is not None:
        first = next((n for n, entry in enumerate(path) if entry.id == before.kept_from), last)
    left_out = [entry for entry in path[first:start] if isinstance(entry.data, Items | ToolResult | User | Compaction)]
    if len([entry for entry in left_out if not isinstance(entry.data, Compaction)]) < 2:
        return "", []
    return (path[start].id if start < len(path) else ""), left_out


def _weight(entry: Entry) -> int:
    match entry.data:
        case Items(items=items):
            return sum(len(bytes(item)) for item in items) // 3
        case ToolResult(output=text) | User(text=text):
            return estimate(text)
        case _:
            return 0


async def _summary(desk: Desk, model: str, card: ModelCard, service: Metered) -> str:
    """What the model makes of it; empty when it does not."""
    words = max(60, min(500, card.context_window // 24))
    ask = Message("user", prompts.SUMMARY.format(words=words))
    told, chain = history(desk.conversation), desk.chain
    new = told.after(chain.response) if chain is not None else None
    answer = Answer()
    request = ResponseRequest(
        model=model,
        input=[*(new if new is not None else told.items), ask],
        instructions=prompts.instructions(prompts.DEEP, desk.root),
        previous_response_id=chain.response if chain is not None and new is not None else None,
        tools=desk.toolbox.describe(),
        tool_choice="none",
        max_output_tokens=max(120, min(1024, card.context_window // 8)),
        store=False,
        prompt_cache_key=desk.conversation.id,
    )
    with contextlib.suppress(VivaceError):
        await listen(service, request, answer, lambda text: None, lambda text: None)
    return (answer.text or answer.partial).strip() if answer.status in ("completed", "incomplete") else ""


def _facts(desk: Desk, left_out: list[Entry], room: int) -> list[str]:
    """Lines that hold what the model may not forget, those of an earlier compaction included."""
    facts: dict[str, None] = {}
    calls = {entry.data.call: entry.data for entry in desk.conversation.path() if isinstance(entry.data, ToolCall)}
    said: list[str] = []
    for entry in left_out:
        match entry.data:
            case Compaction(facts=before):
                facts |= dict.fromkeys(fact for fact in before if not fact.startswith(_TEXT))
            case User(text=text) if desk.conversation.state(entry.id).state != "failed":
                said.append(f"{_SAID} {text.strip()[:SAID]}")
            case ToolResult(call=call, ok=ok, output=output) if call in calls:
                if fact := _fact(calls[call], ok, output):
                    facts.pop(fact, None)
                    facts[fact] = None
    for path in desk.looked:
        sight = desk.context.seen.get(path)
        if sight is not None and sight.spans:
            spans = ", ".join(f"{first}-{last}" for first, last in sight.spans[:8])
            facts[f"{path} was read: lines {spans} (sha256 {sight.sha256[:12]})"] = None
    lines = list(facts)
    told = [fact for fact in lines if fact.startswith(_SAID)] + said
    rest = [fact for fact in lines if not fact.startswith(_SAID)]
    kept: list[str] = []
    for fact in [*reversed(list(dict.fromkeys(told))), *reversed(rest)]:
        room -= estimate(fact)
        if room < 0:
            break
        kept.append(fact)
    return [fact for fact in [*dict.fromkeys(told), *rest] if fact in set(kept)]


def _fact(call: ToolCall, ok: bool, output: str) -> str:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return ""
    first = next((line for line in output.splitlines() if line.strip()), "")[:160]
    if call.name in ("edit", "write", "rewrite") and ok:
        return f"{arguments.get('path', '')} was changed by {call.name}: {first}"
    if call.name == "shell":
        last = next((line for line in reversed(output.splitlines()) if line.strip()), "")[:160]
        return f"ran `{str(arguments.get('command', ''))[:160]}`: {first} {last if last != first else ''}".rstrip()
    if call.name == "ask":
        return f"asked `{str(arguments.get('question', ''))[:160]}`: {first}"
    return "" if ok else f"{call.name} failed: {first}"


_SAID = "The user said:"
_TEXT = "Text of "


def _texts(desk: Desk, budget: int) -> list[str]:
    """Files that were looked at last, whole and as they are now, as far as there is room; the model then knows them."""
    seen = desk.context.seen
    latest = [path for path in desk.looked if (sight := seen.get(path)) is not None and sight.spans][::-1]
    seen.forget()
    texts = []
    for path in latest:
        with contextlib.suppress(VivaceError):
            source = Workspace(desk.root).read(path)
            numbered = "\n".join(f"{n}\t{line}" for n, line in enumerate(source.lines, 1))
            cost = desk.context.count(numbered)
            if cost <= budget:
                budget -= cost
                texts.append(f"{_TEXT}{path} as it is now:\n{numbered}")
                seen.note(path, source.sha256, 1, len(source.lines))
    return texts
