"""What a request asks for, checked and looked up: model, tier, chain, tools, and room under the quotas."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from vivace.backends.base import Job
from vivace.dialects.tools import ToolTable
from vivace.errors import UsageError
from vivace.protocol.contracts import Principal
from vivace.protocol.errors import BadRequest, Refused
from vivace.protocol.items import Item, Message, item_text, items_of
from vivace.protocol.requests import ResponseRequest
from vivace.service.chains import Chains, Link
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
    compacts: bool = False
    """The answer is a compaction of the conversation."""
    chained: bool = False
    """The client named the parent itself."""


class Desk:
    """Takes requests in. Everything that it raises has an HTTP status."""

    def __init__(self, backends: Backends, tiers: TierTable, meters: Meters, chains: Chains, sealer: Sealer) -> None:
        self.backends = backends
        self.tiers = tiers
        self.meters = meters
        self.chains = chains
        self.sealer = sealer

    async def take(self, request: ResponseRequest, principal: Principal, buyer: Buyer, parent: Link | None) -> Asked:
        """Check a request and reserve room for it; the caller settles or releases the reservation.

        ``parent`` is the link of ``previous_response_id``, already found. Raises :class:`BadRequest` and
        :class:`Refused`.
        """
        check_supported(request)
        buyer.check_model(request.model)
        buyer.plan.check_model(request.model)
        tier = self.tiers.resolve(request.service_tier, request.model, buyer.plan)
        served = await self.backends.find(request.model, tier)
        items = items_of(request.input) if isinstance(request.input, str) else request.input
        chained = parent is not None
        given = items
        if parent is None:
            found = self.chains.longest(principal.id, request.model, request.instructions, items)
            if found is not None:
                parent, count = found
                given = items[count:]
        read = read_items(given, self.sealer, lambda id: stored_item(parent, id))
        before = parent.items() if parent is not None else []
        table = ToolTable.of(request.tools or [], request.tool_choice, request.parallel_tool_calls, [*before, *read])
        reservation = self._reserve(request, principal, buyer, tier, parent, read)
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
            job=make_job(request, before, read, table, parent, tier, principal),
            reservation=reservation,
            compacts=wants_compaction(items),
            chained=chained,
        )

    def _reserve(
        self,
        request: ResponseRequest,
        principal: Principal,
        buyer: Buyer,
        tier: Tier,
        parent: Link | None,
        read: list[Item],
    ) -> Reservation:
        text = sum(len(item_text(item)) for item in read) + len(request.instructions or "")
        estimate = (parent.tokens if parent is not None else 0) + text // CHARACTERS_PER_TOKEN
        output = 0 if request.prepares_only else request.max_output_tokens or GUESSED_OUTPUT
        try:
            return self.meters.reserve(
                principal.id, buyer.plan, buyer.key, request.model, estimate, output, time.time()
            )
        except QuotaExceeded as error:
            raise Refused(
                f"{error.message}. Please try again in {error.retry_after}s.",
                429,
                error.code,
                headers=error.headers,
            ) from error


def make_job(
    request: ResponseRequest,
    before: list[Item],
    read: list[Item],
    table: ToolTable,
    parent: Link | None,
    tier: Tier,
    principal: Principal,
) -> Job:
    """The job of a request: everything before it, then what it adds. The continuation counts where nothing that stands
    before the conversation has changed."""
    head: list[Item] = [Message("system", request.instructions)] if request.instructions else []
    same = (
        parent is not None
        and parent.continuation is not None
        and parent.instructions == request.instructions
        and parent.tools == table.digest
        and parent.model == request.model
    )
    # Somebody who shares a server may step back for others, not in front of them.
    priority = request.priority if principal.id == "local" else min(0, request.priority)
    return Job(
        request=request,
        items=[*head, *before, *read],
        tools=table,
        continuation=parent.continuation if same and parent is not None else None,
        known=len(head) + len(before) if same else 0,
        affinity=request.prompt_cache_key or (parent.id if parent is not None else ""),
        priority=tier.priority + priority,
        prefill_only=request.prepares_only,
    )


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
    if request.prompt is not None and not {"fim", "raw"} & request.prompt.keys():
        raise BadRequest("Prompt templates are not kept here; send the text.", "prompt", _UNSUPPORTED)
    if request.background and request.store is False:
        raise BadRequest("A background response has to be stored.", "background")
    if request.background and request.stream_id is not None:
        raise BadRequest("A background response has no lane.", "background")
    if request.top_logprobs:
        raise BadRequest("Log probabilities are not returned.", "top_logprobs", _UNSUPPORTED)


def as_refusal(error: Exception) -> BadRequest:
    """Any error of a request as one with an HTTP status."""
    if isinstance(error, BadRequest):
        return error
    if isinstance(error, UsageError):
        # Codex CLI retries 403 and 404; what it asks for will not be there the next time either.
        status = 404 if error.code == "model_not_found" else 400
        return Refused(str(error), status, error.code if error.code != "usage" else "invalid_value", error.param)
    code = getattr(error, "code", "server_error")
    status = {"context_length_exceeded": 400, "model_not_found": 404, "database_unavailable": 503}.get(code, 500)
    return Refused(str(error), status, code)


_UNSUPPORTED = "unsupported_parameter"
