"""The terminal app: puts the widgets together, gives keys their meaning by state, hands events to who shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer

from vivace.agent.turns import events as ev
from vivace.errors import VivaceError
from vivace.ui.app.blocks.welcome import Welcome
from vivace.ui.app.commands import COMMANDS, is_command
from vivace.ui.app.completer import Completer
from vivace.ui.app.deeds import Deeds
from vivace.ui.app.frugal import Ground, Middle
from vivace.ui.app.look import DARK, LIGHT
from vivace.ui.app.pump import Pump
from vivace.ui.app.scribe import Scribe
from vivace.ui.app.transcript import Transcript
from vivace.ui.app.widgets.ask import AskPanel
from vivace.ui.app.widgets.bar import StatusBar
from vivace.ui.app.widgets.completion import Completion
from vivace.ui.app.widgets.help import HelpScreen
from vivace.ui.app.widgets.meters import MetersLine
from vivace.ui.app.widgets.prompt import ANSWERING, DECIDING, PLACEHOLDER, WORKING, Prompt
from vivace.ui.app.widgets.waiting import WaitingList
from vivace.ui.app.widgets.workers import WorkerTree
from vivace.ui.app.wrapping import last_line
from vivace.ui.contract import MODES, Choice, House, Talk
from vivace.ui.mentioned import mentioned

TWICE = 1.5
"""Seconds within which a key counts as pressed twice."""
READ_AHEAD = 0.25
"""Seconds without a key after which files that the text names are read ahead."""


class VivaceApp(App[str]):
    """Returns the id of the conversation that it ended with."""

    TITLE = "vivace"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - an instance variable above
    CSS = """
    Ground { layout: vertical; background: $background; }
    #middle { height: 1fr; layout: vertical; }
    .-narrow WorkerTree { max-height: 7; }
    Prompt:nocolor .text-area--cursor { text-style: reverse; }
    Picker:nocolor .option-list--option-highlighted { text-style: reverse; }
    .-wide #middle { layout: horizontal; }
    .-wide WorkerTree { width: 44; height: 100%; border-left: solid $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Stop", show=False),
        Binding("ctrl+c", "interrupt_or_quit", "Clear, stop, quit", show=False, priority=True),
        Binding("ctrl+d", "leave", "Quit", show=False),
        Binding("shift+tab", "next_mode", "Next mode", show=False, priority=True),
        Binding("alt+up", "take_back", "Take back a message", show=False, priority=True),
        Binding("shift+up", "to_ask", "Go to the question", show=False, priority=True),
        Binding("pageup", "page(-1)", "Scroll up", show=False, priority=True),
        Binding("pagedown", "page(1)", "Scroll down", show=False, priority=True),
        Binding("ctrl+o", "unfold", "Unfold the last output", show=False, priority=True),
        Binding("f1", "help", "Help", show=False, priority=True),
    ]

    def __init__(self, house: House, choice: Choice, light: bool = False) -> None:
        # Without colours the terminal's own are kept; the toolkit would else make grey of them.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.house = house
        self.choice = choice
        self.talk: Talk | None = None
        self.transcript = Transcript("transcript")
        self.scribe = Scribe(self.transcript)
        self.crew = WorkerTree("workers")
        self.waiting = WaitingList("waiting")
        self.ask = AskPanel("ask")
        self.completion = Completion("completion")
        self.prompt = Prompt(self.completion, "prompt")
        self.meters = MetersLine("meters")
        self.bar = StatusBar(choice.root.name, "bar")
        self.deeds = Deeds(self)
        self.completer = Completer(self)
        self._light = light
        self._pump: Pump | None = None
        self._welcome: Welcome | None = None
        self._early: list[tuple[str, bool]] = []
        self._pressed: dict[str, float] = {}
        self._reading: Timer | None = None

    def get_default_screen(self) -> Screen[Any]:
        return Ground(id="_default")

    def compose(self) -> ComposeResult:
        with Middle(id="middle"):
            yield self.transcript
            yield self.crew
        yield self.waiting
        yield self.ask
        yield self.completion
        yield self.prompt
        yield self.meters
        yield self.bar

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = LIGHT.name if self._light else DARK.name
        self._pump = Pump(self.take)
        self.bar.mode, self.bar.model = self.choice.mode, self.choice.model
        self.bar.approvals = self.choice.approvals
        self.begin_capture_print(self, stdout=False)
        self.prompt.focus()
        self.do(self.open(self.choice))

    # What happens

    async def open(self, choice: Choice) -> None:
        """Begin the conversation that ``choice`` says, in the place of the one that is open."""
        assert self._pump is not None
        old, self.talk = self.talk, None
        if old is not None:
            await old.close()
        self.clear()
        self.choice = choice
        self.bar.hint = "opening the workspace"
        if choice.conversation:
            self.deeds.show_past(choice.conversation)
        talk = self.house.open(choice, self._pump)
        try:
            await talk.begin()
        finally:
            self.bar.hint = ""
        self.talk = talk
        if not self.transcript.blocks and not self._early:
            self._welcome = self.transcript.add(Welcome(choice.root.name, choice.model))
            self.transcript.settle()
        if talk.unfinished:
            self.scribe.note("The last turn was cut off; /continue finishes it.", "warning")
        early, self._early = self._early, []
        for text, queue in early:
            self.say(text, queue)

    def clear(self) -> None:
        """Everything that was shown of a conversation."""
        self._welcome = None
        self.transcript.clear()
        self.scribe = Scribe(self.transcript)
        self.waiting.clear()
        self.ask.clear()
        self.crew.clear()
        self.meters.restart()

    def take(self, events: list[ev.Event]) -> None:
        """A bundle of events, at the pace of the screen."""
        if not self.is_running:
            return
        if self._welcome is not None and any(isinstance(event, ev.MessageChanged) for event in events):
            self.transcript.drop(self._welcome)
            self._welcome = None
        self.scribe.take(events)
        for event in events:
            if isinstance(event, ev.WorkerChanged):
                self.crew.changed(event)
            elif isinstance(event, ev.JobChanged) and not event.worker:
                self.crew.job_changed(event)
            elif not event.worker:
                self._show(event)

    def _show(self, event: ev.Event) -> None:
        """What the widgets around the transcript show of an event."""
        match event:
            case ev.MessageChanged():
                self.waiting.changed(event)
            case ev.TurnBegan():
                self.meters.restart(waits=True)
                self.bar.chosen = event.mode
                self.crew.put_away()
                self.crew.foreground(f"{event.mode} · {event.model}")
                self._busy(True)
            case ev.Meters():
                self.meters.measured(event)
            case ev.Said() | ev.Thought() | ev.Editing():
                self.meters.heard()
            case ev.Proposed():
                self.meters.heard()
                self.meters.changed(max(event.added, event.removed))
            case ev.ToolBegan():
                self.meters.heard()
                self.crew.foreground(f"{event.name} {event.brief}")
            case ev.Asked():
                self.crew.foreground("waits for your answer")
                self.asked(event)
            case ev.Answered():
                self.crew.foreground(f"{self.bar.chosen} · {self.bar.model}")
                self.answered(event.ask)
            case ev.ModeChanged():
                self.bar.mode, self.bar.model = event.mode, event.model
            case ev.TurnEnded():
                self.meters.heard()
                self.crew.foreground("")
                self._busy(False)

    def asked(self, event: ev.Asked) -> None:
        """Ask; the focus goes there only where nobody is writing."""
        self.ask.asked(event)
        self.bar.asks = True
        self._prompting()
        if not self.prompt.text.strip() and self.focused in (self.prompt, None):
            self.ask.focus()

    def answered(self, ask: str) -> None:
        had = self.ask.has_focus
        self.ask.answered(ask)
        self.bar.asks = self.ask.current is not None
        self._prompting()
        if had and self.ask.current is None:
            self.prompt.focus()

    def _busy(self, busy: bool) -> None:
        self.bar.busy = busy
        self.prompt.set_class(busy, "busy")
        self._prompting()

    def _prompting(self) -> None:
        """Say in the empty input what Enter does now."""
        ask = self.ask.current
        kind = "" if ask is None else ask.kind
        working = WORKING if self.bar.busy else PLACEHOLDER
        self.prompt.placeholder = ANSWERING if kind == "question" else DECIDING if kind else working

    @property
    def busy(self) -> bool:
        return self.talk is not None and not self.talk.idle

    # What the user does

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        if is_command(event.text):
            self.do(self.deeds.run(event.text))
        else:
            self.say(event.text, event.queue)

    def say(self, text: str, queue: bool = False) -> None:
        """Steer what runs, or begin a turn; or hold for the next."""
        if self.talk is None:
            self._early.append((text, queue))
            return
        ask = self.ask.current
        try:
            if ask is not None and ask.kind == "question" and not queue:
                self.talk.answer(ask.ask, text)
                return
            verb = "queue" if queue else "send" if self.talk.idle else "steer"
            self.talk.say(text, verb, mentioned(text, self.choice.root))  # type: ignore[arg-type]
            self._busy(True)
        except VivaceError as error:
            self.prompt.put(text)
            self.tell(error)

    def on_ask_panel_replied(self, event: AskPanel.Replied) -> None:
        if self.deeds.replied(event.ask, event.reply):
            return
        self.do(self._reply(event.ask.ask, event.reply))

    async def _reply(self, ask: str, reply: str) -> None:
        if self.talk is not None:
            self.talk.answer(ask, reply)

    def on_ask_panel_left(self, event: AskPanel.Left) -> None:
        self.prompt.focus()
        if event.character:
            self.prompt.insert(event.character)

    def on_transcript_left(self) -> None:
        self.prompt.focus()

    def on_prompt_left(self) -> None:
        self.action_leave()

    def on_print(self, event: events.Print) -> None:
        """What a slow start writes to stderr (a model is fetched, weights are converted) is said in the last line."""
        line = last_line(event.text)
        if line and not self.meters.say(line):
            self.hint(line)

    def on_prompt_typed(self) -> None:
        self.completer.complete()
        if self._reading is not None:
            self._reading.stop()
        self._reading = self.set_timer(READ_AHEAD, self._read_ahead)

    def _read_ahead(self) -> None:
        text = self.prompt.text
        if self.talk is not None and text.strip() and not is_command(text):
            self.talk.typing(text)

    # Keys

    def action_escape(self) -> None:
        if self.busy:
            self.do(self.deeds.stop())
        elif self._twice("escape"):
            self.do(self.deeds.step_back())
        elif self.focused is not self.prompt:
            self.prompt.focus()

    def action_interrupt_or_quit(self) -> None:
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
        elif len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.prompt.text.strip():
            self.prompt.remember(self.prompt.text)
            self.prompt.text = ""
            self.hint("cleared; Up brings it back")
        elif self.busy:
            self.do(self.deeds.stop())
        elif self._twice("ctrl+c"):
            self.action_leave()
        else:
            self.hint("Ctrl+C again to quit")

    def action_leave(self) -> None:
        self.exit(self.talk.conversation.id if self.talk is not None else "")

    def action_next_mode(self) -> None:
        at = MODES.index(self.bar.mode) if self.bar.mode in MODES else 0
        self.do(self.deeds.mode(MODES[(at + 1) % len(MODES)]))

    def action_take_back(self) -> None:
        last = self.waiting.last
        if last is None or self.talk is None:
            return
        if self.talk.inbox.drop(last.number):
            self.waiting.gone(last.number)
            self.prompt.put(last.text)
            self.prompt.focus()
        else:
            self.hint("it was taken already")

    def action_to_ask(self) -> None:
        if self.ask.current is not None:
            self.ask.focus()

    def action_page(self, step: int) -> None:
        if len(self.screen_stack) > 1:
            (self.screen.action_page_down if step > 0 else self.screen.action_page_up)()
        else:
            self.transcript.scroll_relative(y=step * max(self.transcript.size.height - 2, 1), animate=False)

    def action_unfold(self) -> None:
        self.transcript.unfold_last()

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            first = self.focused
            self.push_screen(HelpScreen(getattr(first, "HELP", "")))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for command in COMMANDS:
            title = f"/{command.name} {command.takes}".strip()
            yield SystemCommand(title, command.brief, partial(self._from_palette, command.name, command.takes))

    def _from_palette(self, name: str, takes: str) -> None:
        if takes and not takes.startswith("["):
            self.prompt.put(f"/{name} ")
            self.prompt.focus()
        else:
            self.do(self.deeds.run(f"/{name}"))

    # Helpers

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it on the side; what goes wrong is told in the transcript."""
        self.run_worker(self._guarded(work), exit_on_error=False)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except VivaceError as error:
            self.tell(error)
        except Exception as error:
            # A defect, told all the same: the conversation is worth more than the face.
            self.log.error(error)
            self.scribe.note(f"internal error ({type(error).__name__}: {error}); please report it", "error")

    def tell(self, error: VivaceError) -> None:
        self.scribe.note(str(error), "error")

    def hint(self, text: str) -> None:
        """Say something for a moment."""
        self.bar.hint = text
        self.set_timer(2, partial(self._unhint, text))

    def _unhint(self, text: str) -> None:
        if self.bar.hint == text:
            self.bar.hint = ""

    def _twice(self, key: str) -> bool:
        now = time.monotonic()
        last = self._pressed.pop(key, -TWICE)
        if now - last <= TWICE:
            return True
        self._pressed[key] = now
        return False
