"""Which events are at the same time?"""


def conflicts(events):
    """Every pair of overlapping events, once. ``events`` are sorted by their start."""
    found = []
    for n, event in enumerate(events):
        for later in events[n + 1 :]:
            if later.start >= event.end:
                break
            found.append((event, later))
    return found
