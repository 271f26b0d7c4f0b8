"""Items as a client sent them, to items as a model reads them: summaries for compactions, thoughts for opaque ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vivace.protocol import items as it
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import Item
from vivace.service.chains import Link
from vivace.service.sealing import Sealer

SUMMARY = "Summary of the conversation before this point, to go on from:\n\n"
"""What a summary is introduced by in the prompt."""


def read_items(
    items: Sequence[Item], sealer: Sealer, stored: Callable[[str], Item | None], param: str = "input"
) -> list[Item]:
    """What a model reads in place of ``items``; ``stored`` finds the item of a reference.

    A compaction trigger is left out: it is an order to the service. Raises :class:`BadRequest` with the place of an
    item that cannot be read.
    """
    read: list[Item] = []
    for index, item in enumerate(items):
        where = f"{param}[{index}]"
        match item:
            case it.Compaction():
                read.append(it.Message("user", SUMMARY + sealer.open_compaction(item.encrypted_content, where)))
            case it.Reasoning() if not item.content and item.encrypted_content:
                # Another server's thoughts are none that this model can read.
                text = sealer.open("reasoning", item.encrypted_content)
                if text:
                    read.append(it.Reasoning(item.id, item.summary, [it.ReasoningText(text)]))
            case it.ItemReference():
                found = stored(item.id)
                if found is None:
                    raise BadRequest(f"Item with id '{item.id}' not found.", where, "item_not_found")
                read.append(found)
            case it.CompactionTrigger():
                continue
            case _:
                read.append(item)
    return read


def wants_compaction(items: Sequence[Item]) -> bool:
    """Whether the request ends with Codex CLI's order to compact."""
    return bool(items) and isinstance(items[-1], it.CompactionTrigger)


def read_after(
    parent: Link | None, read: list[Item], made: list[Item], compacts: bool, sealer: Sealer
) -> tuple[list[Item], bool]:
    """What a model reads of a response from the next one on, and whether it stands for everything before it.

    ``read`` is what its request added to ``parent``, ``made`` what it put out. A compaction among that replaces the
    conversation; ``compacts`` tells that it was all that was asked for.
    """
    at = next((i for i, item in enumerate(made) if isinstance(item, it.Compaction)), None)
    if at is None:
        return [*read, *made], False
    whole = [*(parent.items() if parent is not None else []), *read]
    summary = read_items(made[at : at + 1], sealer, lambda id: None)
    return [*after_compaction(whole, summary, compacts), *made[at + 1 :]], True


def after_compaction(items: list[Item], summary: list[Item], compacts: bool) -> list[Item]:
    """What a model reads in place of a conversation that was summarised: what it was told first, the tools that were
    added, the summary, and, unless that was all that was wanted (``compacts``), what has come since its last answer.
    """
    head, end = parts_of(items)
    added = [item for item in items[head:end] if isinstance(item, it.AdditionalTools)]
    return [*items[:head], *added, *summary, *([] if compacts else items[end:])]


def parts_of(items: Sequence[Item]) -> tuple[int, int]:
    """Where the messages of the developer at the beginning end, and where what has come since the last answer begins.

    Outputs are nothing without the calls that they belong to, so those stay with them.
    """
    head = next((n for n, item in enumerate(items) if not _tells(item)), len(items))
    start = next((n for n in range(len(items), head, -1) if _answers(items[n - 1])), head)
    missing = {
        item.call_id for item in items[start:] if isinstance(item, it.FunctionCallOutput | it.CustomToolCallOutput)
    }
    while missing and start > head:
        start -= 1
        item = items[start]
        if isinstance(item, it.FunctionCall | it.CustomToolCall):
            missing.discard(item.call_id)
        elif isinstance(item, it.FunctionCallOutput | it.CustomToolCallOutput):
            missing.add(item.call_id)
    return head, start


def _tells(item: Item) -> bool:
    return isinstance(item, it.AdditionalTools) or (
        isinstance(item, it.Message) and item.role in ("system", "developer")
    )


def _answers(item: Item) -> bool:
    return isinstance(item, it.Reasoning | it.FunctionCall | it.CustomToolCall) or (
        isinstance(item, it.Message) and item.role == "assistant"
    )
