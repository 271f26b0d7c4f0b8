"""What the model has been shown of each file, so that no edit rests on a text that is not there any more."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Sight:
    """Of one file: the hash of its bytes when it was shown, and the lines that were, from 1, both ends included."""

    sha256: str
    spans: list[tuple[int, int]] = field(default_factory=list)

    def covers(self, first: int, last: int) -> bool:
        """Every line from ``first`` to ``last`` was shown."""
        return any(start <= first and last <= end for start, end in self.spans)


class Seen:
    """One per conversation. Paths are as the workspace calls them."""

    def __init__(self) -> None:
        self._files: dict[str, Sight] = {}

    def get(self, path: str) -> Sight | None:
        return self._files.get(path)

    def note(self, path: str, sha256: str, first: int = 1, last: int = 0) -> None:
        """Lines ``first`` to ``last`` were shown; other lines of other bytes count no more."""
        sight = self._files.get(path)
        if sight is None or sight.sha256 != sha256:
            sight = self._files[path] = Sight(sha256)
        if last >= first:
            sight.spans = _joined([*sight.spans, (first, last)])

    def forget(self) -> None:
        """The context was compacted: the texts are gone from it. Hashes stay, edits are still checked by them."""
        for sight in self._files.values():
            sight.spans.clear()


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
