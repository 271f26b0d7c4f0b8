"""Tiers: what the service sells. A tier decides backend, engine priority, share of a full queue, and price.

:class:`TierTable` is the whole of the tiers file: tiers, plans, prices and model families. docs/tiers.md is its schema,
``tiers.example.toml`` an example.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from vivace.errors import UsageError, did_you_mean
from vivace.protocol.contracts import Price as PerMillion
from vivace.protocol.items import Usage
from vivace.service.plans import OPEN, Plan
from vivace.service.toml_file import Part, TomlFile

V = TypeVar("V")

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Tier(Struct, frozen=True, forbid_unknown_fields=True):
    """One tier.

    ``models`` are the globs that it is offered for. ``backend`` maps model globs to backend ids; without a match the
    model's own backend answers. ``priority`` is the engine's (higher enters a step first). ``weight`` is its share of
    a full backend, relative to the other tiers that wait. ``price`` maps model globs to a factor on the model's price.
    ``max_concurrent`` is how many of its responses run on one backend at a time.
    """

    id: str
    name: str = ""
    description: str = ""
    models: list[str] = field(default_factory=lambda: ["*"])
    backend: dict[str, str] = field(default_factory=dict)
    priority: int = 0
    weight: float = 1.0
    price: dict[str, Decimal] = field(default_factory=dict)
    max_concurrent: int | None = None
    aliases: list[str] = field(default_factory=list)

    def backend_for(self, model: str) -> str | None:
        """The backend that answers for ``model`` in this tier; None is the model's own."""
        return by_glob(self.backend, model)

    def offers(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """What a million tokens cost, in the currency. ``cached`` is for input tokens found in the KV cache."""

    model: str
    input: Decimal
    output: Decimal
    cached: Decimal | None = None


class TierFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of the file, as written."""

    currency: str = "USD"
    default_plan: str = OPEN.id
    tiers: list[Tier] = field(default_factory=list, name="tier")
    plans: list[Plan] = field(default_factory=list, name="plan")
    prices: list[Price] = field(default_factory=list, name="price")
    families: dict[str, list[str]] = field(default_factory=dict, name="family")


BUILT_IN = [
    Tier(
        id="default",
        name="Default",
        description="The usual speed.",
        weight=4,
        # "scale" is OpenAI's and "standard_only" Anthropic's word for no special treatment without a contract.
        aliases=["standard", "standard_only", "scale"],
    ),
    Tier(
        id="flex",
        name="Flex",
        description="Waits when others are busy.",
        priority=-10,
        weight=1,
        price={"*": Decimal("0.5")},
    ),
    Tier(
        id="priority",
        name="Fast",
        description="Served before others.",
        priority=10,
        weight=8,
        price={"*": Decimal(2)},
        aliases=["fast"],
    ),
    Tier(
        id="ultrafast",
        name="Ultrafast",
        description="Served first.",
        priority=20,
        weight=16,
        price={"*": Decimal(4)},
    ),
]
"""The tiers when the file has none, or there is no file. Ids are those of OpenAI's ``service_tier``."""


class TierTable:
    """Everything that the tiers file decides. Immutable; made by :meth:`load`."""

    def __init__(self, content: TierFile) -> None:
        self.currency = content.currency
        self.tiers = {tier.id: tier for tier in content.tiers or BUILT_IN}
        self.plans = {OPEN.id: OPEN} | {plan.id: plan for plan in content.plans}
        self.prices = {price.model: price for price in content.prices}
        self.families = content.families
        self.default_plan = self.plans[content.default_plan]
        self._aliases = {alias: tier for tier in self.tiers.values() for alias in tier.aliases}

    @classmethod
    def load(cls, path: Path | None) -> TierTable:
        """The table of the file at ``path``, or the built-in one. Raises UsageError with file, line and key."""
        if path is None:
            return cls(TierFile())
        file = TomlFile(path)
        content = file.read(TierFile)
        _check(file, content)
        return cls(content)

    def plan(self, name: str | None) -> Plan:
        """The plan called ``name``, or the default one for None."""
        if name is None:
            return self.default_plan
        if name not in self.plans:
            raise UsageError(
                f"There is no plan {name!r}",
                hint=did_you_mean(name, list(self.plans)),
                code="plan_not_found",
                param="plan",
            )
        return self.plans[name]

    def resolve(self, asked: str | None, model: str, plan: Plan) -> Tier:
        """The tier that serves a request; its ``id`` is what the response echoes.

        None and ``auto`` mean the plan's default tier. Anthropic's ``speed: fast`` is asked as ``fast``.
        """
        name = plan.default_tier if asked in (None, "auto") else str(asked)
        tier = self.tiers.get(name) or self._aliases.get(name)
        offered = [entry["id"] for entry in self.for_catalogue(model, plan)]
        if tier is None:
            message, code, hint = f"There is no service tier {name!r}", "tier_not_found", did_you_mean(name, offered)
        elif not plan.allows_tier(tier.id):
            message, code = f"The plan {plan.id!r} does not include the service tier {tier.id!r}", "tier_not_allowed"
            hint = f"Offered: {', '.join(offered)}."
        elif not tier.offers(model):
            message, code = f"The service tier {tier.id!r} is not offered for {model!r}", "tier_not_allowed"
            hint = f"Offered: {', '.join(offered)}."
        else:
            return tier
        raise UsageError(message, hint=hint, code=code, param="service_tier")

    def for_catalogue(self, model: str, plan: Plan | None = None) -> list[dict[str, str]]:
        """The tiers of a model, as Codex's catalogue lists them in ``service_tiers``."""
        return [
            {"id": tier.id, "name": tier.name or tier.id, "description": tier.description}
            for tier in self.tiers.values()
            if tier.offers(model) and (plan is None or plan.allows_tier(tier.id))
        ]

    def price(self, model: str, plan: Plan) -> PerMillion | None:
        """What a model costs in the tier that ``plan`` serves from when none is asked for; None without a price."""
        price, factor = by_glob(self.prices, model), by_glob(self.tiers[plan.default_tier].price, model)
        if price is None:
            return None
        factor = Decimal(1) if factor is None else factor
        cached = price.input if price.cached is None else price.cached
        return PerMillion(
            float(price.input * factor), float(cached * factor), float(price.output * factor), self.currency
        )

    @property
    def window_lengths(self) -> set[int]:
        """The lengths of all plans' windows, in seconds."""
        return {window.seconds for plan in self.plans.values() for window in plan.windows}

    def family(self, model: str) -> str:
        """The family whose meters a model counts in; a model of no family counts alone."""
        for name, patterns in self.families.items():
            if any(fnmatchcase(model, pattern) for pattern in patterns):
                return name
        return model

    def cost(self, model: str, tier: Tier, usage: Usage) -> int:
        """What a response costs, in millionths of the currency: exact decimals, rounded once, half to even.

        A price of 1 per million tokens is one millionth per token.
        """
        price = by_glob(self.prices, model)
        if price is None:
            return 0
        cached = usage.input_tokens_details.cached_tokens
        amount = (usage.input_tokens - cached) * price.input + usage.output_tokens * price.output
        amount += cached * (price.input if price.cached is None else price.cached)
        factor = by_glob(tier.price, model)
        return int((amount * (1 if factor is None else factor)).to_integral_value(ROUND_HALF_EVEN))


def by_glob(table: dict[str, V], name: str) -> V | None:
    """The value under ``name`` itself, else under the first glob that matches it."""
    if name in table:
        return table[name]
    return next((value for pattern, value in table.items() if fnmatchcase(name, pattern)), None)


def _check(file: TomlFile, content: TierFile) -> None:
    """Raises for values that cannot be meant, with the line that holds them."""

    def need(true: bool, parts: list[Part], message: str, hint: str = "") -> None:
        if not true:
            raise file.wrong(parts, message, hint)

    tiers, plans = content.tiers or BUILT_IN, {plan.id for plan in content.plans} | {OPEN.id}
    ids = [tier.id for tier in tiers]
    taken: set[str] = {"auto"}
    for n, tier in enumerate(content.tiers):
        for key, names in (("id", [tier.id]), ("aliases", tier.aliases)):
            for name in names:
                need(_ID.fullmatch(name) is not None, ["tier", n, key], f"{name!r} cannot be the name of a tier")
                need(name not in taken, ["tier", n, key], f"the name {name!r} is taken")
                taken.add(name)
        need(0 < tier.weight < float("inf"), ["tier", n, "weight"], "has to be above 0")
        need(tier.max_concurrent is None or tier.max_concurrent > 0, ["tier", n, "max_concurrent"], "has to be above 0")
        for glob, factor in tier.price.items():
            need(factor.is_finite() and factor >= 0, ["tier", n, "price", glob], "cannot be below 0")
    need("default" in ids, ["tier"], "one tier has to be called 'default': clients ask for it by this name")
    for n, price in enumerate(content.prices):
        for key in ("input", "output", "cached"):
            value = getattr(price, key)
            need(value is None or (value.is_finite() and value >= 0), ["price", n, key], "cannot be below 0")
    names_of_plans: set[str] = set()
    for n, plan in enumerate(content.plans):
        need(_ID.fullmatch(plan.id) is not None, ["plan", n, "id"], f"{plan.id!r} cannot be the name of a plan")
        need(plan.id not in names_of_plans, ["plan", n, "id"], f"the name {plan.id!r} is taken")
        names_of_plans.add(plan.id)
        for name in plan.tiers:
            need(name == "*" or name in ids, ["plan", n, "tiers"], f"no tier {name!r}", did_you_mean(name, ids))
        need(
            plan.default_tier in ids,
            ["plan", n, "default_tier"],
            f"no tier {plan.default_tier!r}",
            did_you_mean(plan.default_tier, ids),
        )
        need(plan.allows_tier(plan.default_tier), ["plan", n, "default_tier"], "is not among the plan's tiers")
        need(plan.concurrent is None or plan.concurrent > 0, ["plan", n, "concurrent"], "has to be above 0")
        need(0 <= plan.cached_percent <= 100, ["plan", n, "cached_percent"], "has to be from 0 to 100")
        for m, window in enumerate(plan.windows):
            need(0 < window.seconds <= 366 * 86400, ["plan", n, "window", m, "seconds"], "has to be from 1 s to a year")
            need(window.limit >= 0, ["plan", n, "window", m, "limit"], "cannot be below 0")
            known = window.family is None or not content.families or window.family in content.families
            need(
                known,
                ["plan", n, "window", m, "family"],
                f"no family {window.family!r}",
                did_you_mean(window.family or "", list(content.families)),
            )
    need(
        content.default_plan in plans,
        ["default_plan"],
        f"no plan {content.default_plan!r}",
        did_you_mean(content.default_plan, sorted(plans)),
    )
