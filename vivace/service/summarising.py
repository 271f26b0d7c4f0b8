"""A conversation that grew too long: when it is to be summarised, and what its model is asked for that."""

from __future__ import annotations

import msgspec

from vivace.backends.base import Backend, End, Job, Run, Text
from vivace.errors import VivaceError
from vivace.protocol.items import Item, Message
from vivace.service.reading import parts_of

SUMMARISE = (
    "Write a summary of this conversation for whoever continues the work without having seen it: the goal, decisions "
    "and constraints, files and names that matter with what was learned about each, what was done, what is still open. "
    "Be complete and brief. Write the summary only."
)
"""What a model is asked when a conversation is to be compacted."""
SUMMARY_TOKENS = 2048
"""Of a summary at most: small models that repeat themselves would fill the window."""


async def over_threshold(job: Job, backend: Backend) -> bool:
    """Whether the conversation is to be compacted first, and there is something of it to compact."""
    rules = job.request.context_management or []
    limit = min((rule.compact_threshold or 0 for rule in rules if rule.type == "compaction"), default=0)
    conversation = job.items[1:] if job.request.instructions else job.items
    head, end = parts_of(conversation) if limit else (0, 0)
    return head < end and await backend.count(job) >= limit


def asking_for_summary(job: Job) -> Job:
    """The job with one more message behind the same prompt prefix, answered in words."""
    request = msgspec.structs.replace(
        job.request, prediction=None, text=None, tool_choice="none", max_output_tokens=SUMMARY_TOKENS, stop=[]
    )
    table = msgspec.structs.replace(job.tools, mode="none", allowed=())
    items: list[Item] = [*job.items, Message("user", SUMMARISE)]
    return msgspec.structs.replace(job, request=request, tools=table, items=items)


async def summary_of(run: Run) -> tuple[End, str]:
    """How it ended, and the summary where that is ``stop``. Raises :class:`VivaceError` for a run without an end."""
    parts: list[str] = []
    async for piece in run:
        if isinstance(piece, Text):
            parts.append(piece.text)
        if not isinstance(piece, End):
            continue
        end, summary = msgspec.structs.replace(piece, continuation=None), "".join(parts).strip()
        if piece.reason not in ("stop", "length"):
            return end, ""
        if not summary:
            return msgspec.structs.replace(end, reason="error", message="The model wrote no summary."), ""
        # One that was cut off is a summary all the same: without any the client cannot go on.
        return msgspec.structs.replace(end, reason="stop"), summary
    raise VivaceError("The backend's answer broke off.", code="server_error")
