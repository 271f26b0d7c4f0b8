"""Several configurations, the later ones over the earlier."""

from layered.parser import parse
from layered.references import resolved


class Layers:
    def __init__(self):
        self._layers = []

    def add(self, name, text):
        """Lay the configuration ``text`` over those that are there."""
        self._layers.append((name, parse(text)))

    def raw(self, section, key):
        """The value of the uppermost layer that has it, references unresolved. Raises KeyError."""
        for _, sections in reversed(self._layers):
            if key in sections.get(section, {}):
                return sections[section][key]
        raise KeyError(f"{section}.{key}" if section else key)

    def get(self, section, key, default=None):
        """The value with its references resolved, or ``default`` where there is none."""
        try:
            value = self.raw(section, key)
        except KeyError:
            return default
        return resolved(value, self._named, (f"{section}.{key}" if section else key,))

    def origin(self, section, key):
        """The name of the layer that decides; None where no layer does."""
        for name, sections in reversed(self._layers):
            if key in sections.get(section, {}):
                return name
        return None

    def section(self, section):
        """All entries of a section over all layers, resolved."""
        keys = {}
        for _, sections in self._layers:
            keys.update(dict.fromkeys(sections.get(section, {})))
        return {key: self.get(section, key) for key in keys}

    def sections(self):
        """The names of all sections, in the order in which they first appear."""
        return list(dict.fromkeys(name for _, sections in self._layers for name in sections))

    def _named(self, name):
        section, _, key = name.rpartition(".")
        return self.raw(section, key)
