"""What stands on the screen before anything was said."""

from __future__ import annotations

from vivace.ui.app.blocks.base import Block

HINTS = (
    ("", "Say what is to be done, and name the file if you know it:"),
    ("", "  add type hints to @util.py"),
    ("", "The change is shown as it is written; nothing is written to your files before you say yes."),
    ("@", "names a file"),
    ("/", "lists the commands"),
    ("Shift+Tab", "auto, fast or deep"),
    ("F1", "all keys"),
)


class Welcome(Block):
    def __init__(self, folder: str, model: str) -> None:
        super().__init__()
        self.folder, self.model = folder, model

    def plain(self) -> str:
        return "\n".join(" ".join(hint).strip() for hint in HINTS)

    def fill(self) -> None:
        assert self.look is not None
        look = self.look
        named = f" · {self.model}" if self.model else ""
        self.add(("  ", look.base), ("vivace", look.user), (f" in {self.folder}{named}", look.base))
        self.add(("", look.base))
        for key, text in HINTS:
            if key:
                self.add(("  ", look.base), (key.ljust(11), look.accent), (text, look.dim))
            else:
                self.add_text(text, look.base)
                self.add(("", look.base))
