"""Values to text, and text to the lines of a cell."""

MISSING = "-"


def shown(value, digits=2):
    """How a value is written: numbers with so many decimals, nothing as a dash, truth as yes and no."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}f}"
    return str(value)


def wrapped(text, width):
    """Lines of at most ``width`` characters, broken at blanks; a word that is longer is cut into pieces."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split():
            while len(word) > width:
                if line:
                    lines.append(line)
                    line = ""
                lines.append(word[:width])
                word = word[width:]
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            elif word:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines


def clipped(text, width):
    """The text, with its end replaced by three dots where it is too long."""
    if len(text) <= width:
        return text
    return text[: width - 3] + "..." if width > 3 else "." * width
