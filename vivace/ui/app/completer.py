"""What fits the word that is being typed, looked for while it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vivace.ui.app.commands import fitting
from vivace.ui.app.mentions import Files
from vivace.ui.mentioned import mentioned, written

if TYPE_CHECKING:
    from vivace.ui.app.app import VivaceApp


class Completer:
    """Offers commands and their arguments at once, and files as soon as they are found."""

    def __init__(self, app: VivaceApp) -> None:
        self.app = app
        self.files = Files(app.choice.root)

    def complete(self) -> None:
        """The text of the input or the place in it has changed."""
        prompt, completion = self.app.prompt, self.app.completion
        word, start = prompt.word()
        row, _ = prompt.cursor_location
        line = prompt.text.split("\n", 1)[0] if row == 0 else ""
        if word.startswith("@"):
            self.app.run_worker(partial(self._find, word), thread=True, exclusive=True, group="completion")
        elif line.startswith("/") and start == 0 and "/" not in word[1:]:
            found = [(f"/{command.name}", f"{command.takes} {command.brief}".strip()) for command in fitting(word[1:])]
            completion.offer(found, word)
        elif line.startswith("/") and " " in line:
            command, *before = line[:start].split()
            completion.offer(self.app.deeds.arguments(command[1:], before, word), word)
        else:
            completion.offer([])

    def _find(self, word: str) -> None:
        """Look for files; in a thread."""
        named = word[1:].strip('"')
        whole = mentioned(word, self.app.choice.root)
        # "@a.py?" names a file already, with the end of a sentence behind it.
        near = [] if whole and whole[0] != named else self.files.near(named)
        self.app.call_from_thread(self._found, word, [(written(path), "") for path in near])

    def _found(self, word: str, found: list[tuple[str, str]]) -> None:
        if self.app.prompt.word()[0] == word:
            done = len(found) == 1 and found[0][0] == word
            self.app.completion.offer([] if done else found, word)
