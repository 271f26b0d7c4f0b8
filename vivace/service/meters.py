"""What principals and keys have used, and whether they may use more: checked before, reserved, settled after.

In memory and exact. A principal's use is counted for each model family on its own, a key's over all models. The ledger
gives back what was used before a restart and what other servers on the same database let pass
(:mod:`vivace.service.follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from vivace.protocol.items import Usage
from vivace.service.plans import DAY, MINUTE, KeyLimits, Plan, QuotaExceeded, Window, span_text
from vivace.service.rate_limits import MeterState, limit_headers
from vivace.service.windows import Amount, Rolling

KEY_LENGTHS = (MINUTE, DAY)


class Use(Struct, frozen=True):
    """Something used, as the ledger tells it. ``at`` is in milliseconds since the epoch; ``key`` is '' without one."""

    principal: str
    family: str
    key: str
    credits: bool
    at: int
    amount: Amount


class Account(Struct):
    """A principal's credits, in millionths of the currency. ``held`` is reserved by running responses."""

    balance: int = 0
    opted_in: bool = False
    held: int = 0


class Scope:
    """What is counted together: a principal and family, or a key. ``held`` is what running responses reserved."""

    def __init__(self, lengths: Iterable[int]) -> None:
        self.rolling = {seconds: Rolling(seconds) for seconds in lengths}
        self.held = Amount()
        self.running = 0

    def count(self, at: int, amount: Amount, sign: int = 1) -> None:
        for rolling in self.rolling.values():
            rolling.add(at, amount, sign)

    def expire(self, at: int) -> None:
        for rolling in self.rolling.values():
            rolling.expire(at)

    def idle_at(self, at: int) -> bool:
        self.expire(at)
        return self.running == 0 and all(rolling.empty for rolling in self.rolling.values())


class Meters:
    """One for the service, used from one thread. ``lengths`` are the windows of all plans, in seconds.

    ``family`` names the family of a model. Times are seconds since the epoch.
    """

    def __init__(self, lengths: Iterable[int], family: Callable[[str], str]) -> None:
        self.lengths = sorted(set(lengths))
        self.family = family
        self.credits: dict[str, Account] = {}
        self._principals: dict[tuple[str, str], Scope] = {}
        self._keys: dict[str, Scope] = {}

    def reserve(
        self,
        principal: str,
        plan: Plan,
        key: KeyLimits | None,
        model: str,
        estimate_input: int,
        estimate_output: int,
        now: float,
        *,
        estimate_cost: int = 0,
    ) -> Reservation:
        """Room for one request, held until it is settled or released. Raises :class:`QuotaExceeded`.

        The request counts at once, its tokens when it is settled. ``estimate_cost`` is held from the credits when they
        pay for it.
        """
        family, at = self.family(model), int(now * 1000)
        asked = Amount(requests=1, fresh=estimate_input, output=estimate_output)
        own = self._of_principal(principal, family, at)
        limits = [_Limit(own, window, family, plan.cached_percent) for window in plan.windows_of(family)]
        counted = [own]
        refused = _refused_concurrent(own, plan.concurrent, family)
        if key is not None:
            scope = self._of_key(key.id, at)
            counted.append(scope)
            refused = refused or _refused_concurrent(scope, key.concurrent, f"key {key.id}")
            key_limits = [_Limit(scope, window, f"key {key.id}", 100) for window in key.windows]
            refused = refused or _worst(key_limits, asked, at)
        credits = None
        if refused is None:
            refused = _worst(limits, asked, at)
            credits = self._credits(principal, plan, estimate_cost) if refused is not None else None
        if refused is not None and credits is None:
            raise refused.error(limit_headers(self.snapshot(principal, plan, key, model, now)))
        return Reservation(counted, credits, asked, at, estimate_cost)

    def snapshot(self, principal: str, plan: Plan, key: KeyLimits | None, model: str, now: float) -> list[MeterState]:
        """Where every meter stands that a request for ``model`` would count in: the plan's, then the key's."""
        family, at = self.family(model), int(now * 1000)
        own = self._of_principal(principal, family, at)
        limits = [_Limit(own, window, family, plan.cached_percent) for window in plan.windows_of(family)]
        states = [limit.state(at, "plan") for limit in limits]
        if plan.concurrent is not None:
            states.append(_concurrent(own, plan.concurrent, family, "plan"))
        if key is not None:
            scope = self._of_key(key.id, at)
            states += [_Limit(scope, window, f"key {key.id}", 100).state(at, "key") for window in key.windows]
            if key.concurrent is not None:
                states.append(_concurrent(scope, key.concurrent, f"key {key.id}", "key"))
        return states

    def count(self, use: Use, seconds: int | None = None) -> None:
        """Count what the ledger tells, in the windows of ``seconds`` only where it is given."""
        scopes = [] if use.credits else [self._of_principal(use.principal, use.family, use.at)]
        if use.key:
            scopes.append(self._of_key(use.key, use.at))
        for scope in scopes:
            if seconds is None:
                scope.count(use.at, use.amount)
            elif seconds in scope.rolling:
                scope.rolling[seconds].add(use.at, use.amount)

    def sweep(self, now: float) -> None:
        """Forget who has used nothing for the length of every window."""
        at = int(now * 1000)
        self._principals = {name: scope for name, scope in self._principals.items() if not scope.idle_at(at)}
        self._keys = {name: scope for name, scope in self._keys.items() if not scope.idle_at(at)}

    def _of_principal(self, principal: str, family: str, at: int) -> Scope:
        scope = self._principals.get((principal, family))
        if scope is None:
            scope = self._principals[principal, family] = Scope(self.lengths)
        scope.expire(at)
        return scope

    def _of_key(self, key: str, at: int) -> Scope:
        scope = self._keys.get(key)
        if scope is None:
            scope = self._keys[key] = Scope(KEY_LENGTHS)
        scope.expire(at)
        return scope

    def _credits(self, principal: str, plan: Plan, cost: int) -> Account | None:
        """The account that pays beyond the plan, if there is one that can."""
        account = self.credits.get(principal)
        if not plan.overflow_to_credits or account is None or not account.opted_in:
            return None
        return account if account.balance - account.held >= max(1, cost) else None


class Reservation:
    """Room held for one request. Ends once, by :meth:`settle` or :meth:`release`; what comes later does nothing.

    ``credits`` tells whether the principal's credits pay for it.
    """

    def __init__(self, scopes: list[Scope], account: Account | None, asked: Amount, at: int, cost: int) -> None:
        self.credits = account is not None
        self.open = True
        self._scopes = scopes
        self._paying = scopes[1:] if account is not None else scopes
        self._account = account
        self._asked = asked
        self._at = at
        self._cost = cost
        for scope in scopes:
            scope.running += 1
        for scope in self._paying:
            scope.count(at, Amount(requests=1))
            scope.held.add(Amount(fresh=asked.fresh, output=asked.output))
        if account is not None:
            account.held += cost

    @classmethod
    def nothing(cls) -> Reservation:
        """That of a request that uses nothing, such as one to count its tokens."""
        return cls([], None, Amount(), 0, 0)

    def settle(self, usage: Usage, now: float, cost: int = 0) -> bool:
        """Count what was really used, instead of the estimate. ``cost`` is taken from the credits when they pay."""
        if not self._end():
            return False
        cached = usage.input_tokens_details.cached_tokens
        used = Amount(fresh=usage.input_tokens - cached, cached=cached, output=usage.output_tokens)
        for scope in self._paying:
            scope.count(int(now * 1000), used)
        if self._account is not None:
            self._account.balance -= cost
        return True

    def release(self) -> bool:
        """Nothing was used; the request does not count either."""
        if not self._end():
            return False
        for scope in self._paying:
            scope.count(self._at, Amount(requests=1), -1)
        return True

    def _end(self) -> bool:
        was_open, self.open = self.open, False
        if was_open:
            for scope in self._scopes:
                scope.running -= 1
            for scope in self._paying:
                scope.held.add(Amount(fresh=self._asked.fresh, output=self._asked.output), -1)
            if self._account is not None:
                self._account.held -= self._cost
        return was_open


class _Refusal(Struct):
    name: str
    text: str
    limit: int
    used: int
    resets_in: float
    never: bool = False

    def error(self, headers: dict[str, str]) -> QuotaExceeded:
        if self.never:
            # The SDK would try again by itself.
            headers = {**headers, "x-should-retry": "false"}
        error = QuotaExceeded(
            self.text, meter=self.name, limit=self.limit, used=self.used, resets_in=self.resets_in, headers=headers
        )
        if not self.never:
            # Codex CLI reads the wait from these very words when the error comes in a response.failed.
            error.message += f" Please try again in {error.retry_after}s."
            error.args = (error.message,)
        return error


class _Limit:
    """A window of a scope. ``subject`` is what it is counted for: a family or a key."""

    def __init__(self, scope: Scope, window: Window, subject: str, cached_percent: int) -> None:
        self.window = window
        self.subject = subject
        self.percent = cached_percent
        self.rolling = scope.rolling[window.seconds]
        self.reserved = scope.held.of(window.meter)

    @property
    def used(self) -> int:
        return self.rolling.total.of(self.window.meter, self.percent)

    def refusal(self, asked: Amount, at: int) -> _Refusal | None:
        window, wanted = self.window, asked.of(self.window.meter)
        need = self.used + self.reserved + wanted - window.limit
        if need <= 0:
            return None
        unit, span = window.meter.replace("_", " "), span_text(window.seconds)
        text = f"The limit of {window.limit:,} {unit} in {span} for {self.subject} "
        if wanted > window.limit:
            text += f"is below what this request may need alone ({wanted:,})."
            resets_in = float(window.seconds)
        else:
            text += f"is reached: {self.used + self.reserved:,} used or reserved"
            text += "." if window.meter == "requests" else f", and this request may need {wanted:,}."
            # Where time alone does not free enough, a running response has to end first.
            frees_in = self.rolling.frees_in(at, need, window.meter, self.percent)
            resets_in = (self.rolling.empties_in(at, window.meter) or 1.0) if frees_in is None else frees_in
        name = f"{window.name}/{self.subject}"
        never = wanted > window.limit
        return _Refusal(name, text, window.limit, self.used + self.reserved, resets_in, never)

    def state(self, at: int, of: str) -> MeterState:
        return MeterState(
            name=f"{self.window.name}/{self.subject}",
            meter=self.window.meter,
            of=of,
            seconds=self.window.seconds,
            limit=self.window.limit,
            used=self.used,
            reserved=self.reserved,
            resets_in=self.rolling.empties_in(at, self.window.meter),
        )


def _worst(limits: list[_Limit], asked: Amount, at: int) -> _Refusal | None:
    """Of the limits that refuse, the one to wait for the longest."""
    refusals = [refusal for limit in limits if (refusal := limit.refusal(asked, at)) is not None]
    return max(refusals, key=lambda refusal: (refusal.never, refusal.resets_in), default=None)


def _refused_concurrent(scope: Scope, limit: int | None, subject: str) -> _Refusal | None:
    if limit is None or scope.running < limit:
        return None
    text = f"The limit of {limit:,} concurrent responses for {subject} is reached."
    return _Refusal(f"concurrent/{subject}", text, limit, scope.running, 1.0)


def _concurrent(scope: Scope, limit: int, subject: str, of: str) -> MeterState:
    return MeterState(
        name=f"concurrent/{subject}", meter="concurrent", of=of, seconds=0, limit=limit, used=scope.running
    )
