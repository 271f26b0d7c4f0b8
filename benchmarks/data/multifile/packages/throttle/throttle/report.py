"""What keys have left, as text."""


def headers(limiter, key, decision):
    """The headers of an HTTP answer, all of them text."""
    remaining = limiter.remaining(key)
    found = {} if remaining is None else {"X-RateLimit-Remaining": str(int(remaining))}
    if not decision.allowed:
        found["Retry-After"] = "never" if decision.wait == float("inf") else str(_ceiling(decision.wait))
    return found


def listing(limiter):
    """One line a key, those with the least left first."""
    keys = limiter.keys()
    rows = sorted((limiter.remaining(key), key) for key in keys)
    return "\n".join(f"{key}: {remaining:g} left" for remaining, key in rows)


def _ceiling(seconds):
    whole = int(seconds)
    return whole if whole == seconds else whole + 1
