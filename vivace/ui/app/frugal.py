"""Draws what has changed and nothing beside it."""

from __future__ import annotations

from collections.abc import Iterable

from textual._compositor import Compositor
from textual.containers import Container
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip


class Frugal(Compositor):
    """The toolkit's own has every widget of the screen render all its lines for each frame, and throws most away."""

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Regions and clips with their lines, from the front to the back; what is drawn first stays."""
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if not seen or (crop is not None and not crop.overlaps(seen)):
                continue
            yield region, clip, widget.render_lines(seen.translate((-region.x, -region.y)))
            if crop is not None and seen.contains_region(crop):
                return  # nothing behind it shows


class Middle(Container):
    """Has nothing of its own to draw, which saves drawing it behind the transcript for each frame."""

    BLANK = True


class Ground(Screen[None]):
    """The same for the whole screen, whose widgets are drawn only where something has changed."""

    BLANK = True

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._compositor = Frugal()
