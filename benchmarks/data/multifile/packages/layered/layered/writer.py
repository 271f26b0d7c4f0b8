"""A dictionary of sections back to text."""

from layered.values import text_of


def write(sections):
    """Text that :func:`layered.parser.parse` reads as ``sections``. The section ``""`` comes first."""
    parts = []
    for name in sorted(sections, key=lambda name: name != ""):
        lines = [f"[{name}]"] if name else []
        lines += [f"{key} = {text_of(value)}" for key, value in sections[name].items()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
