"""The time between events."""


def gaps(events, start, end, least=None):
    """``(from, to)`` of each gap between ``start`` and ``end``. ``events`` are sorted by their start."""
    found, at = [], start
    for event in events:
        if event.start > at:
            found.append((at, event.start))
        at = max(at, event.end)
    if at < end:
        found.append((at, end))
    return [gap for gap in found if least is None or gap[1] - gap[0] >= least]
