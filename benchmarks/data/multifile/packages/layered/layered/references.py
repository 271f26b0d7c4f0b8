"""``${section.key}`` in values."""

import re

_REFERENCE = re.compile(r"\$\{([^}]*)\}")


class ReferenceLoop(ValueError):
    """References that lead back to themselves."""


def resolved(value, lookup, seen=()):
    """``value`` with its references replaced by what ``lookup(name)`` gives for them, and theirs in turn.

    A value that is one reference and nothing else takes over the type of what it refers to. Raises KeyError for a name
    that is not there and ReferenceLoop.
    """
    if isinstance(value, list):
        return [resolved(part, lookup, seen) for part in value]
    if not isinstance(value, str):
        return value

    def follow(name):
        if name in seen:
            raise ReferenceLoop(" -> ".join([*seen, name]))
        return resolved(lookup(name), lookup, (*seen, name))

    whole = _REFERENCE.fullmatch(value)
    if whole:
        return follow(whole[1])
    return _REFERENCE.sub(lambda match: str(follow(match[1])), value)
