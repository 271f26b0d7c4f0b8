"""Text to logical lines: comments gone, continued lines joined."""


def logical_lines(text):
    """``(number, line)`` of every line that says something; ``number`` is that of its first physical line, from 1.

    A line that ends with a backslash goes on in the next. A comment begins with ``#`` or ``;`` at the start of a line,
    or with a blank and ``#`` after a value.
    """
    found, pending, began = [], "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip() if pending else raw.rstrip()
        if not pending:
            began = number
            if line.lstrip()[:1] in ("", "#", ";"):
                continue
        if line.endswith("\\"):
            pending += line[:-1].rstrip() + " "
            continue
        found.append((began, uncommented(pending + line)))
        pending = ""
    if pending:
        found.append((began, uncommented(pending.rstrip())))
    return found


def uncommented(line):
    """The line without the comment at its end; a ``#`` inside double quotes is none."""
    quoted = False
    for at, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif char == "#" and not quoted and at and line[at - 1] in " \t":
            return line[:at].rstrip()
    return line
