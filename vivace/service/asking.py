"""What a request asks for, checked and looked up: model, tier, chain, tools, and room under the quotas."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from vivace.backends.base import Job
from vivace.dialects.tools import ToolTable
from vivace.errors import UsageError
from vivace.protocol.contracts import Principal
from vivace.protocol.errors import BadRequest, Refused
from vivace.protocol.items import AdditionalTools, Item, ItemReference, Message, encode, item_text, items_of
from vivace.protocol.requests import ResponseRequest, written_tools
from vivace.protocol.usage import Usage
from vivace.service.chains import Chains, Link, Said, extend, root
from vivace.service.meters import Meters, Reservation
from vivace.service.plans import KeyLimits, Plan, QuotaExceeded
from vivace.service.reading import read_items, wants_compaction
from vivace.service.registry import Backends, Served
from vivace.service.sealing import Sealer
from vivace.service.tiers import Tier, TierTable

GUESSED_OUTPUT = 1024
"""Output tokens that are reserved where a request sets no limit."""
CHARACTERS_PER_TOKEN = 3
"""For the reservation of input, which is settled by what the backend counts."""
TABLES = 256
"""Sets of tools that are kept parsed."""
QUICK = 1.0
"""Seconds in which opening a backend may still fail as an HTTP error; after that the response begins, and waits."""


class Buyer(Struct, frozen=True):
    """Who pays: the principal's plan, and the limits of the key in use."""

    plan: Plan
    key: KeyLimits | None = None
    check_model: Callable[[str], None] = lambda model: None
    """Raises for a model that the key is not for."""


class Asked(Struct):
    """A request that may be answered."""

    request: ResponseRequest
    principal: Principal
    buyer: Buyer
    tier: Tier
    served: Served
    table: ToolTable
    parent: Link | None
    given: list[Item]
    read: list[Item]
    job: Job
    reservation: Reservation
    said: Said
    """The conversation up to and with ``given``, and the size of that."""
    fresh: int = 0
    """About how many tokens the request adds to its chain."""
    compacts: bool = False
    """The answer is a compaction of the conversation."""
    chained: bool = False
    """The client named the parent itself."""


class Tables:
    """Tables of tools, parsed once: Codex CLI sends the same 20 KB with every request."""

    def __init__(self, most: int = TABLES) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, ToolTable] = OrderedDict()

    def of(self, request: ResponseRequest, additional: Sequence[AdditionalTools]) -> ToolTable:
        """The table of a request in a conversation with ``additional`` tools. Raises as :meth:`ToolTable.of` does."""
        tools, choice, parallel = request.tools or [], request.tool_choice, request.parallel_tool_calls
        key = encode((written_tools(tools), choice, parallel, [item.tools for item in additional]))
        table = self._kept.get(key)
        if table is None:
            table = self._kept[key] = ToolTable.of(tools, choice, parallel, additional)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return table


class Desk:
    """Takes requests in. Everything that it raises has an HTTP status."""

    def __init__(self, backends: Backends, tiers: TierTable, meters: Meters, chains: Chains, sealer: Sealer) -> None:
        self.backends = backends
        self.tiers = tiers
        self.meters = meters
        self.chains = chains
        self.sealer = sealer
        self.tables = Tables()
        self._tiers: dict[tuple[str | None, str, str], Tier] = {}

    async def take(
        self,
        request: ResponseRequest,
        principal: Principal,
        buyer: Buyer,
        parent: Link | None,
        patience: float | None = QUICK,
        *,
        reserves: bool = True,
    ) -> Asked:
        """Check a request and reserve room for it; the caller settles or releases the reservation.

        ``parent`` is the link of ``previous_response_id``, already found. A backend that takes longer than ``patience``
        seconds to open is not waited for. Without ``reserves`` nothing is to be used, so no limit refuses it. Raises
        :class:`BadRequest` and :class:`Refused`.
        """
        check_supported(request)
        buyer.check_model(request.model)
        buyer.plan.check_model(request.model)
        tier = self._tier(request, buyer.plan)
        served = await self.backends.find(request.model, tier, patience)
        items = items_of(request.input) if isinstance(request.input, str) else request.input
        if any(isinstance(item, ItemReference) for item in items):
            items = [self._stored(item, parent, principal) for item in items]
        chained = parent is not None
        given = items
        if parent is not None:
            said = extend(parent.digest, given)
        else:
            found = self.chains.longest(root(principal.id, request.model, request.instructions), items)
            parent, given, said = found.link, items[found.covered :], found.said
        read = read_items(given, self.sealer, lambda id: None)
        before = parent.items() if parent is not None else []
        inherited = parent.additional if parent is not None else ()
        table = self.tables.of(request, [*inherited, *(item for item in read if isinstance(item, AdditionalTools))])
        job = make_job(request, before, read, table, tier, principal)
        if parent is not None and continues(job, parent, served.backend_id):
            job = continued(job, parent, len(read))
        if not job.items and not request.prepares_only and request.prompt is None:
            raise BadRequest("There is nothing to answer: 'input' is empty.", "input", "missing_required_parameter")
        characters = sum(len(item_text(item)) for item in read) + len(request.instructions or "")
        fresh = (characters + len(request.completed_text)) // CHARACTERS_PER_TOKEN
        # Nothing is waited for between here and the turn, whose end settles it.
        reservation = Reservation.nothing()
        if reserves:
            reservation = self._reserve(request, principal, buyer, tier, parent, fresh)
        return Asked(
            request=request,
            principal=principal,
            buyer=buyer,
            tier=tier,
            served=served,
            table=table,
            parent=parent,
            given=given,
            read=read,
            job=job,
            reservation=reservation,
            said=said,
            fresh=fresh,
            compacts=wants_compaction(items),
            chained=chained,
        )

    def _tier(self, request: ResponseRequest, plan: Plan) -> Tier:
        key = request.service_tier, request.model, plan.id
        tier = self._tiers.get(key)
        if tier is None:
            if len(self._tiers) >= TABLES:
                self._tiers.clear()
            tier = self._tiers[key] = self.tiers.resolve(request.service_tier, request.model, plan)
        return tier

    def _reserve(
        self,
        request: ResponseRequest,
        principal: Principal,
        buyer: Buyer,
        tier: Tier,
        parent: Link | None,
        fresh: int,
    ) -> Reservation:
        model, plan = request.model, buyer.plan
        estimate = (parent.tokens if parent is not None else 0) + fresh
        output = 0 if request.prepares_only else request.max_output_tokens or GUESSED_OUTPUT
        cost = 0
        if plan.overflow_to_credits:
            cost = self.tiers.cost(model, tier, Usage(input_tokens=estimate, output_tokens=output))
        try:
            return self.meters.reserve(
                principal.id, plan, buyer.key, model, estimate, output, time.time(), estimate_cost=cost
            )
        except QuotaExceeded as error:
            headers = {**error.headers, "x-ratelimit-meter": error.meter}
            raise Refused(error.message, 429, error.code, headers=headers) from error

    def _stored(self, item: Item, parent: Link | None, principal: Principal) -> Item:
        """The item itself in place of a reference to it. Raises :class:`BadRequest` where it is not known."""
        if not isinstance(item, ItemReference):
            return item
        found = self.chains.item(item.id, principal.id) or stored_item(parent, item.id)
        if found is None:
            raise BadRequest(f"Item with id '{item.id}' not found.", "input", "item_not_found")
        return found


def make_job(
    request: ResponseRequest,
    before: list[Item],
    read: list[Item],
    table: ToolTable,
    tier: Tier,
    principal: Principal,
) -> Job:
    """The job of a request: everything before it, then what it adds."""
    head: list[Item] = [Message("system", request.instructions)] if request.instructions else []
    # Somebody who shares a server may step back for others, not in front of them.
    priority = request.priority if principal.id == "local" else min(0, request.priority)
    return Job(
        request=request,
        items=[*head, *before, *read],
        tools=table,
        # Without a key the backend goes by how the conversation begins, which is the same for all of its turns.
        affinity=request.prompt_cache_key or "",
        priority=tier.priority + priority,
        prefill_only=request.prepares_only,
    )


def continues(job: Job, parent: Link, backend_id: str) -> bool:
    """Whether nothing that stands before the conversation has changed, so that the parent's continuation counts."""
    request = job.request
    return (
        parent.instructions == request.instructions
        and parent.tools == job.tools.digest
        and parent.model == request.model
        and parent.backend == backend_id
    )


def continued(job: Job, parent: Link, new: int) -> Job:
    """The job behind its parent's continuation, where there is one; the last ``new`` items are not in it."""
    if parent.continuation is None:
        return job
    return msgspec.structs.replace(job, continuation=parent.continuation, known=len(job.items) - new)


def stored_item(parent: Link | None, id: str) -> Item | None:
    """An item of the chain by its id."""
    items = parent.items() if parent is not None else []
    return next((item for item in reversed(items) if getattr(item, "id", None) == id), None)


def check_supported(request: ResponseRequest) -> None:
    """Refuse what this service does not do, by name, rather than do something else."""
    if request.conversation is not None:
        if request.previous_response_id is not None:
            raise BadRequest("'conversation' and 'previous_response_id' exclude each other.", "conversation")
        raise BadRequest(
            "Conversation objects are not kept here; use 'previous_response_id'.", "conversation", _UNSUPPORTED
        )
    if request.multi_agent is not None and request.multi_agent.get("enabled"):
        raise BadRequest("Agents hosted by the server are not offered.", "multi_agent", _UNSUPPORTED)
    if request.prompt is not None:
        _check_prompt(request.prompt)
    if request.background and request.store is False:
        raise BadRequest("A background response has to be stored.", "background")
    if request.background and request.stream_id is not None:
        raise BadRequest("A background response has no lane.", "background")
    if request.top_logprobs:
        raise BadRequest("Log probabilities are not returned.", "top_logprobs", _UNSUPPORTED)


def _check_prompt(prompt: dict[str, Any]) -> None:
    """A text that goes on, or both sides of a gap; see :attr:`ResponseRequest.completed_text`."""
    gap = prompt.get("fim")
    if isinstance(gap, dict) and isinstance(gap.get("prefix"), str) and isinstance(gap.get("suffix"), str):
        return
    if gap is None and isinstance(prompt.get("raw"), str):
        return
    if gap is None and "raw" not in prompt:
        raise BadRequest("Prompt templates are not kept here; send the text.", "prompt", _UNSUPPORTED)
    raise BadRequest('\'prompt\' takes {"raw": text} or {"fim": {"prefix": text, "suffix": text}}.', "prompt")


def as_refusal(error: Exception) -> BadRequest:
    """Any error of a request as one with an HTTP status."""
    if isinstance(error, BadRequest):
        return error
    if isinstance(error, UsageError):
        # Codex CLI retries 403 and 404; what it asks for will not be there the next time either.
        status = 404 if error.code == "model_not_found" else 400
        code = error.code if error.code != "usage" else "invalid_value"
        return Refused(error.message, status, code, error.param, hint=error.hint)
    code, hint = getattr(error, "code", "server_error"), getattr(error, "hint", "")
    status = {"context_length_exceeded": 400, "model_not_found": 404, "database_unavailable": 503}.get(code, 500)
    return Refused(getattr(error, "message", str(error)), status, code, hint=hint)


_UNSUPPORTED = "unsupported_parameter"
