"""One line on stderr that says what a model's loading does, while it does it; nothing where nobody looks."""

from __future__ import annotations

import sys


class LoadingLine:
    """Called with a stage and its share, 0 to 1. Only slow stages are worth a line."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._open = False

    def __call__(self, stage: str, share: float) -> None:
        if not self._shows:
            return
        if stage == "converting":
            sys.stderr.write(f"\r\x1b[KConverting the weights, once: {share:4.0%}")
            self._open = True
        elif self._open:
            sys.stderr.write("\r\x1b[K")
            self._open = False
        sys.stderr.flush()
