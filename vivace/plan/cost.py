"""Energy and money of a token."""

from __future__ import annotations

from msgspec import Struct

from vivace.plan.setup import Setup

YEARS = 4.0
HOURS = YEARS * 365 * 24
KWH = 0.08
"""Dollars; with the years of use the only assumptions of a price that is derived from a purchase."""


class Cost(Struct, frozen=True, kw_only=True):
    """None where no figure for it is known; nothing is guessed."""

    joules_per_token: float | None
    dollars_per_hour: float | None
    dollars_per_million: float | None
    """Of emitted tokens at the planned total speed."""
    from_purchase: bool = False
    """The hourly price is the purchase over four years and its electricity, not a rent."""


def cost_of(setup: Setup, tokens_per_second: float) -> Cost:
    """All devices of the set-up are paid and powered whether they are full or not."""
    hourly, bought = hourly_price(setup)
    watts = setup.device.power.value * setup.count if setup.device.power else None
    return Cost(
        joules_per_token=watts / tokens_per_second if watts else None,
        dollars_per_hour=hourly,
        dollars_per_million=hourly / 3600 / tokens_per_second * 1e6 if hourly else None,
        from_purchase=bought,
    )


def hourly_price(setup: Setup) -> tuple[float | None, bool]:
    """Dollars an hour for all devices, and whether they follow from a purchase price."""
    d = setup.device
    if d.price_hour:
        return d.price_hour.value * setup.count, False
    if d.capital:
        electric = d.power.value / 1000 * KWH if d.power else 0.0
        return (d.capital.value / HOURS + electric) * setup.count, True
    return None, False
