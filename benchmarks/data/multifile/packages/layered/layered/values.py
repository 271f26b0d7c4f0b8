"""The text of a value to a value, and back."""

_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False, "none": None}


def value_of(text):
    """Quoted text as it is, then truth and none, integers, floats, lists in brackets, and text."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [value_of(part) for part in inner.split(",")] if inner else []
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def text_of(value):
    """The text that :func:`value_of` reads as ``value``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(part) for part in value) + "]"
    if isinstance(value, str) and (value_of(value) != value or "#" in value):
        return f'"{value}"'
    return str(value)
