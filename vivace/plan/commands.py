"""``vivace plan``: the forecast of a set-up by default, and verbs around it.

``vivace plan MODEL --on DEVICE`` is the same as ``vivace plan forward MODEL --on DEVICE``: a first word that is no verb
belongs to the default one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vivace.errors import UsageError, VivaceError
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.plan.calibrate import Machine
    from vivace.plan.library import Library
    from vivace.plan.reading import Catalogue
    from vivace.plan.setup import Setup
    from vivace.plan.turn import Workload

OpenMachine = Callable[[str, Settings], "AbstractContextManager[Machine]"]
"""The embedded engine with a catalogue model loaded, for ``calibrate``."""
FindFile = Callable[[str, Settings], "Path | None"]
"""Where the file of a catalogue model lies, if it is here."""

DEFAULT = "forward"


class DefaultVerb(TyperGroup):
    """A group whose first word may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write one self-contained page with plots to this file.")]
On = Annotated[str, typer.Option("--on", help="A name from 'vivace plan devices'.")]
Count = Annotated[int | None, typer.Option(help="Devices; without it the fewest that hold the model.")]
Context = Annotated[int | None, typer.Option(help="Tokens that every sequence holds.")]
Batch = Annotated[int, typer.Option(help="Sequences that are answered at the same time.")]
WeightsOption = Annotated[str, typer.Option("--weights", help="4, 8, 16 or a format; the published one otherwise.")]
Kv = Annotated[str, typer.Option("--kv", help="8, 16 or a format of the KV cache.")]
DraftOption = Annotated[str, typer.Option("--draft", help="mtp, model or copy.")]
Accept = Annotated[str, typer.Option("--accept", help="Acceptance by position: 0.92,0.66,0.24 or 0.8x5.")]
DraftModel = Annotated[str, typer.Option("--draft-model", help="The model that drafts.")]
Engine = Annotated[str, typer.Option(help="The engine, where it is not the one that was calibrated.")]
Calls = Annotated[int, typer.Option(help="Calls of the model in one turn.")]
Rtt = Annotated[float, typer.Option(help="Seconds of a round trip.")]
Cached = Annotated[int, typer.Option(help="Input tokens that the server has seen before.")]
Delta = Annotated[int, typer.Option(help="New input tokens of a call.")]
Output = Annotated[int, typer.Option(help="Output tokens of a call.")]
Tools = Annotated[float, typer.Option(help="Seconds of tools after each call.")]
WaitHour = Annotated[float, typer.Option("--wait-hour", help="Dollars that an hour of waiting costs.")]


def plan_app(open_machine: OpenMachine | None = None, find_file: FindFile | None = None) -> typer.Typer:
    """The ``plan`` group. Both arguments come from the command that composes the rooms."""
    app = typer.Typer(
        cls=DefaultVerb,
        no_args_is_help=True,
        help="Forecast speed, memory and cost of a model on silicon; and backwards, what a claimed speed allows. "
        "'vivace plan MODEL --on DEVICE' stands for 'vivace plan forward MODEL --on DEVICE'.",
    )

    @app.callback()
    def _settings(context: typer.Context) -> None:
        if not isinstance(context.obj, Settings):
            context.obj = Settings()

    def catalogue(settings: Settings) -> Catalogue | None:
        return (lambda name: find_file(name, settings)) if find_file else None

    @app.command(DEFAULT)
    def forward(
        ctx: typer.Context,
        model: Annotated[str, typer.Argument(help="A known model, a config.json, a GGUF file, a catalogue name.")],
        on: On,
        count: Count = None,
        context: Context = None,
        batch: Batch = 1,
        weights: WeightsOption = "",
        kv: Kv = "bf16",
        draft: DraftOption = "",
        accept: Accept = "",
        draft_model: DraftModel = "",
        engine: Engine = "",
        prompt: Annotated[int | None, typer.Option(help="New tokens for the time to the first one.")] = None,
        cached: Annotated[int, typer.Option(help="Tokens before them that the server has seen.")] = 0,
        as_json: AsJson = False,
        html: Html = None,
    ) -> None:
        """Speed, memory, first token, energy and price of one set-up, with intervals."""
        from vivace.plan.forward import forecast
        from vivace.plan.report import forecast_rows

        setup = setup_from(
            ctx, catalogue(ctx.obj), model, on, count, context, batch, weights, kv, draft, accept, draft_model, engine
        )
        found = forecast(setup, prompt=prompt, cached=cached)
        if html:
            from vivace.plan.page import forecast_page

            write_page(html, forecast_page([setup], [found], forecast_rows([found])))
        if as_json:
            print_json(found)
        else:
            print_tables(forecast_rows([found]))
            print_notes(found.notes)

    @app.command()
    def devices(as_json: AsJson = False) -> None:
        """The known devices, and this machine where it was calibrated."""
        from vivace.plan.device import Device
        from vivace.plan.report import device_rows

        found = open_library().every(Device)
        print_json(found) if as_json else print_tables(device_rows(found))

    @app.command()
    def models(as_json: AsJson = False) -> None:
        """The known models, with what is missing of those that cannot be planned."""
        from vivace.plan.model import Model
        from vivace.plan.report import model_rows

        found = open_library().every(Model)
        print_json(found) if as_json else print_tables(model_rows(found))

    @app.command()
    def show(
        ctx: typer.Context,
        name: Annotated[str, typer.Argument(help="A device, a model, a calibration, a tier, or a model's file.")],
        as_json: AsJson = False,
    ) -> None:
        """Every figure of one entry with its interval, grade, date and source."""
        from vivace.plan.report import figure_rows, grades_line, shape_rows

        library = open_library()
        entry = _entry(library, name, catalogue(ctx.obj))
        if as_json:
            print_json(entry)
            return
        print_tables(figure_rows(entry, library), *([shape_rows(entry)] if hasattr(entry, "shape") else []))
        print_notes([grades_line()])

    from vivace.plan import verbs

    verbs.add(app, catalogue)
    if open_machine is not None:
        verbs.add_calibrate(app, open_machine)
    return app


def setup_from(
    ctx: typer.Context,
    catalogue: Catalogue | None,
    model: str,
    on: str,
    count: int | None,
    context: int | None,
    batch: int,
    weights: str,
    kv: str,
    draft: str,
    accept: str,
    draft_model: str,
    engine: str,
) -> Setup:
    from vivace.plan.compare import draft_from, format_name
    from vivace.plan.reading import find_model
    from vivace.plan.setup import make_setup

    library = open_library()
    return make_setup(
        library,
        find_model(library, model, catalogue),
        library.device(on),
        count=count,
        context=context,
        batch=batch,
        weights=format_name(weights),
        kv=format_name(kv),
        draft=draft_from(draft, accept, draft_model),
        engine=engine,
    )


def own_folder() -> Path:
    """The user's own devices, models and prices; they go before the shipped ones."""
    import platformdirs

    return Path(platformdirs.user_config_dir("vivace")) / "plan"


def open_library() -> Library:
    from vivace.plan.library import Library

    return Library.for_user(own_folder())


def _entry(library: Library, name: str, catalogue: Catalogue | None) -> Any:
    """Whatever has this name, devices first."""
    from vivace.errors import did_you_mean
    from vivace.plan.device import Calibration, Device, Price
    from vivace.plan.model import Model
    from vivace.plan.reading import find_model

    known: list[str] = []
    for kind, get in (
        (Device, library.device),
        (Model, lambda text: find_model(library, text, catalogue)),
        (Calibration, library.calibration),
        (Price, library.price),
    ):
        try:
            return get(name)
        except UsageError as error:
            if not error.code.endswith("_not_found"):
                raise
            known += library.names(kind)
    raise UsageError(f"There is nothing called {name!r}.", hint=did_you_mean(name, known), param="name")


def print_json(found: object) -> None:
    from vivace.plan.printing import to_json

    print(to_json(found))


def print_tables(*tables: list[list[str]]) -> None:
    from vivace.plan.printing import print_table

    for rows in tables:
        print_table(rows)


def print_notes(notes: list[str]) -> None:
    for note in notes:
        print(note)


def write_page(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise VivaceError(f"{path} cannot be written: {error.strerror}", code="not_written", param="html") from None
    print(f"wrote {path}", file=sys.stderr)


def workload(calls: int, rtt: float, cached: int, delta: int, output: int, tools: float) -> Workload:
    from vivace.plan.turn import Workload

    return Workload(calls=calls, rtt=rtt, cached=cached, delta=delta, output=output, tools=tools)
