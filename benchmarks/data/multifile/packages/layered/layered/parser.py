"""Logical lines to a dictionary of sections."""

import re

from layered.lines import logical_lines
from layered.values import value_of

_SECTION = re.compile(r"\[\s*([\w.-]+)\s*\]")
_ENTRY = re.compile(r"([\w.-]+)\s*[=:]\s*(.*)")
TOP = ""


class ConfigError(ValueError):
    """What is wrong, and in which line."""

    def __init__(self, line, message):
        super().__init__(f"line {line}: {message}")
        self.line = line


def parse(text):
    """``{section: {key: value}}``. Entries before the first section are in the section ``""``; keys are lower case.

    Raises ConfigError for a line that is neither section nor entry, and for a key that comes twice in a section.
    """
    sections, current = {}, TOP
    for number, line in logical_lines(text):
        line = line.strip()
        if match := _SECTION.fullmatch(line):
            current = match[1]
            sections.setdefault(current, {})
            continue
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise ConfigError(number, f"neither a section nor an entry: {line}")
        key = match[1].lower()
        entries = sections.setdefault(current, {})
        if key in entries:
            raise ConfigError(number, f"{key} is already there")
        entries[key] = value_of(match[2])
    return sections
