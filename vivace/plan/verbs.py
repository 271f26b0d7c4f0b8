"""The verbs of ``vivace plan`` beside the forecast: turn, tier, compare, infer, validate, calibrate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.errors import UsageError
from vivace.plan import commands as c
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.plan.accepted import Attempt, Check, Outcome
    from vivace.plan.reading import Catalogue
    from vivace.plan.setup import Setup
    from vivace.plan.turn import Runner, Turn

FindCatalogue = Callable[[Settings], "Catalogue | None"]


def add(app: typer.Typer, catalogue: FindCatalogue) -> None:
    """All of them but ``calibrate``, which needs an engine."""

    @app.command()
    def turn(
        ctx: typer.Context,
        model: Annotated[str, typer.Argument(help="As in the forecast; left out with --tok-s.")] = "",
        on: Annotated[str, typer.Option("--on", help="A name from 'vivace plan devices'.")] = "",
        tok_s: Annotated[list[float] | None, typer.Option("--tok-s", help="A bare speed; may be repeated.")] = None,
        ttft: Annotated[float, typer.Option(help="Seconds to the first token, for bare speeds.")] = 0.25,
        dollars: Annotated[float | None, typer.Option(help="Dollars per million output tokens of bare speeds.")] = None,
        count: c.Count = None,
        batch: c.Batch = 1,
        weights: c.WeightsOption = "",
        kv: c.Kv = "bf16",
        draft: c.DraftOption = "",
        accept: c.Accept = "",
        draft_model: c.DraftModel = "",
        calls: c.Calls = 1,
        rtt: c.Rtt = 0.08,
        cached: c.Cached = 94_300,
        delta: c.Delta = 2_000,
        output: c.Output = 213,
        tools: c.Tools = 0.3,
        turns: Annotated[int, typer.Option(help="Turns of a task.")] = 1,
        passes: Annotated[float | None, typer.Option("--pass", help="Share of tasks whose edit is right.")] = None,
        tries: Annotated[int, typer.Option(help="Attempts, one after the other.")] = 1,
        race: Annotated[int, typer.Option(help="Attempts at once; the first that passes wins.")] = 1,
        check: Annotated[float, typer.Option(help="Seconds of the check that decides.")] = 0.0,
        false_accept: Annotated[float, typer.Option(help="Share of wrong edits that pass the check.")] = 0.0,
        deep: Annotated[str, typer.Option(help="SECONDS,DOLLARS,PASS of the deep worker behind the fast one.")] = "",
        wait_hour: c.WaitHour = 60.0,
        speech: Annotated[bool, typer.Option("--speech", help="The 400 to 500 ms of a spoken dialogue.")] = False,
        as_json: c.AsJson = False,
    ) -> None:
        """Seconds and money of a turn of an agent, of a task, and of an accepted edit."""
        from vivace.plan.accepted import Check
        from vivace.plan.report import outcome_rows, speech_rows, turn_rows
        from vivace.plan.turn import SPEECH, bare, planned
        from vivace.plan.turn import speech as spoken
        from vivace.plan.turn import turn as take

        work = SPEECH if speech else c.workload(calls, rtt, cached, delta, output, tools)
        racing: Runner | None = None
        found: list[Runner] = [bare(each, ttft, dollars, work) for each in tok_s or []]
        if model or not found:
            if not model or not on:
                raise UsageError("A turn needs a model with --on, or --tok-s.", param="model")
            context = work.cached + work.delta + work.output
            setup = c.setup_from(
                ctx, catalogue(ctx.obj), model, on, count, context, batch, weights, kv, draft, accept, draft_model, ""
            )
            found.insert(0, planned(setup, work))
            racing = planned(_at_once(setup, race), work) if race > 1 else None
        taken = [take(each, work) for each in found]
        spoken_for = {each.name: spoken(each) for each in found} if speech else {}
        outcomes: dict[str, list[Outcome]] = {}
        if passes is not None:
            decides = Check(seconds=check, false_accept=false_accept)
            behind = _deep(deep)
            for index, each in enumerate(taken):
                alone = _attempt(each, turns, passes)
                shared = _attempt(take(racing, work), turns, passes) if racing and index == 0 else alone
                outcomes[each.runner] = _outcomes(alone, shared, decides, tries, race, behind)
        if as_json:
            c.print_json({"turns": taken, "accepted": outcomes, "speech": spoken_for})
            return
        c.print_tables(turn_rows(taken))
        for name, windows in spoken_for.items():
            c.print_tables(speech_rows(name, windows))
        for name, each_outcomes in outcomes.items():
            print(f"{name}: {turns} turns a task, an hour of waiting at ${wait_hour:g}")
            c.print_tables(outcome_rows(each_outcomes, wait_hour))

    @app.command()
    def tier(
        names: Annotated[list[str] | None, typer.Argument(help="Tiers; all known ones by default.")] = None,
        ttft: Annotated[float, typer.Option(help="Seconds to the first token, the same for all.")] = 1.0,
        calls: c.Calls = 1,
        rtt: c.Rtt = 0.08,
        cached: c.Cached = 94_300,
        delta: c.Delta = 2_000,
        output: c.Output = 213,
        tools: c.Tools = 0.3,
        turns: Annotated[int, typer.Option(help="Turns of the work.")] = 20,
        wait_hour: c.WaitHour = 60.0,
        as_json: c.AsJson = False,
    ) -> None:
        """Which hosted tier for this work: money and waiting together, and where the answer turns."""
        from vivace.plan.device import Price
        from vivace.plan.report import tier_rows
        from vivace.plan.tiers import choose
        from vivace.plan.turn import hosted
        from vivace.plan.turn import turn as take

        library = c.open_library()
        work = c.workload(calls, rtt, cached, delta, output, tools)
        prices = [library.price(name) for name in names] if names else library.every(Price)
        choice = choose([take(hosted(price, work, ttft), work) for price in prices], wait_hour, turns)
        if as_json:
            c.print_json(choice)
            return
        c.print_tables(tier_rows(choice))
        for value, name in choice.changes:
            print(f"from ${value:,.0f} an hour of waiting: {name}")
        c.print_notes(list(dict.fromkeys(each.turn.note for each in choice.ranked if each.turn.note)))

    @app.command()
    def compare(
        setups: Annotated[list[str], typer.Argument(help="MODEL@DEVICE[xCOUNT][:option=value]...; two or more.")],
        calls: c.Calls = 1,
        rtt: c.Rtt = 0.08,
        cached: c.Cached = 94_300,
        delta: c.Delta = 2_000,
        output: c.Output = 213,
        tools: c.Tools = 0.3,
        as_json: c.AsJson = False,
        html: c.Html = None,
    ) -> None:
        """Set-ups side by side: every figure, and the same turn on each."""
        from vivace.plan.compare import compare as side_by_side
        from vivace.plan.compare import parse
        from vivace.plan.report import compare_rows

        if len(setups) < 2:
            raise UsageError("A comparison needs two set-ups or more.", param="setups")
        library = c.open_library()
        work = c.workload(calls, rtt, cached, delta, output, tools)
        found = side_by_side(library, setups, work)
        if html:
            from vivace.plan.page import compare_page

            least = work.cached + work.delta + work.output
            parsed = [parse(library, text, least) for text in setups]
            c.write_page(html, compare_page(parsed, found, compare_rows(found)))
        if as_json:
            c.print_json(found)
            return
        c.print_tables(compare_rows(found))
        c.print_notes(list(dict.fromkeys(note for each in found for note in each.forecast.notes)))

    @app.command()
    def infer(
        tok_s: Annotated[float, typer.Option("--tok-s", help="The claimed speed of one user.")] = 750.0,
        on: Annotated[str, typer.Option("--on", help="A name from 'vivace plan devices'.")] = "wse-3",
        devices: Annotated[str, typer.Option(help="How many, as 88 or 70-100.")] = "70-100",
        gain: Annotated[str, typer.Option(help="Tokens a step by speculation, as 1 or 1-3.2.")] = "1",
        layers_per_device: Annotated[str, typer.Option(help="As 1 or 0.5-4.")] = "1",
        tolerance: Annotated[float, typer.Option(help="How near a speed has to come, as a share.")] = 0.05,
        context: Annotated[int, typer.Option(help="Tokens of the sequences that fill the pipeline.")] = 131_072,
        draws: Annotated[int, typer.Option(min=10_000, help="Models that are tried.")] = 1_000_000,
        seed: Annotated[int, typer.Option(help="The same seed gives the same region.")] = 0,
        as_json: c.AsJson = False,
        html: c.Html = None,
    ) -> None:
        """Backwards: which models run at a claimed speed, and what of them the claim really says.

        Without options it takes the shipped example: 750 tok/s on about 88 wafers.
        """
        from vivace.plan.infer import Claim
        from vivace.plan.infer import infer as backwards
        from vivace.plan.report import identified_rows, inference_rows, prior_rows

        low, high = _span(devices, "devices")
        claim = Claim(
            tok_s=tok_s,
            device=c.open_library().device(on).name,
            devices=(int(low), int(high)),
            tolerance=tolerance,
            gain=_span(gain, "gain"),
            layers_per_device=_span(layers_per_device, "layers-per-device"),
            context=context,
        )
        found = backwards(c.open_library(), claim, draws=draws, seed=seed)
        if html:
            from vivace.plan.page import inference_page

            c.write_page(html, inference_page(found, inference_rows(found)))
        if as_json:
            c.print_json(found)
            return
        c.print_tables(inference_rows(found), identified_rows(found), prior_rows(found))
        c.print_notes(found.verdict)

    @app.command()
    def validate(
        as_json: c.AsJson = False,
        full: Annotated[
            bool, typer.Option("--rows", help="Every row, with its reason where it does not count.")
        ] = False,
    ) -> None:
        """Predictions against measured speeds; rows of a calibration never count. Exit code 1 on a miss."""
        from vivace.plan.library import Library
        from vivace.plan.report import class_rows, validation_rows
        from vivace.plan.validate import validate as compare_all

        found = compare_all(Library())
        if as_json:
            c.print_json(found)
        else:
            c.print_tables(*([validation_rows(found)] if full else []), class_rows(found))
        if any(each.met is False for each in found.classes):
            raise typer.Exit(1)


def add_calibrate(app: typer.Typer, open_machine: c.OpenMachine) -> None:
    """``calibrate``, with the engine that the composing command opens."""

    @app.command()
    def calibrate(
        ctx: typer.Context,
        model: Annotated[str, typer.Option(help="The model whose passes are timed.")] = "coder-0.5b",
        check: Annotated[str, typer.Option(help="Another model: predicted, then measured.")] = "",
        rounds: Annotated[int, typer.Option(min=1, help="Repetitions of every pass.")] = 9,
        as_json: c.AsJson = False,
    ) -> None:
        """Measure this machine and the embedded engine; from then on it is the device 'this-machine'."""
        import sys

        from vivace.plan import calibrate as m
        from vivace.plan.printing import plain
        from vivace.plan.report import checked_rows, device_rows, figure_rows

        def say(text: str) -> None:
            print(text, file=sys.stderr)

        library = c.open_library()
        shape = library.model(model)
        other = library.model(check) if check else None
        with open_machine(model, ctx.obj) as machine:
            points = m.measure(machine, m.SHAPES, rounds, say)
            device, calibration, error = m.calibrate(library, shape, machine.bounds(), points)
        if m.busy(points):
            say("Other work disturbed the timings: their interval is wide. Calibrate again when the machine is idle.")
        written = m.write(c.own_folder(), device, calibration)
        found = []
        if other:
            shapes = [each for _, _, each in m.held_out_shapes()]
            with open_machine(check, ctx.obj) as machine:
                timed = m.measure(machine, shapes, rounds, say)
            found = m.check(library, other, device, calibration, timed)
        if as_json:
            c.print_json(
                {
                    "device": plain(device),
                    "calibration": plain(calibration),
                    "unexplained": error,
                    "points": points,
                    "check": found,
                    "files": [str(path) for path in written],
                }
            )
            return
        c.print_tables(device_rows([device]), figure_rows(calibration, library))
        print(f"unexplained: {error:.1%} of a pass's time. Wrote {', '.join(str(path) for path in written)}.")
        if found:
            c.print_tables(checked_rows(found))


def _at_once(setup: Setup, race: int) -> Setup:
    """Every user's candidates run at the same time and share the devices."""
    from msgspec import structs

    from vivace.plan.setup import fits, refuse

    racing = structs.replace(setup, batch=setup.batch * race)
    if not fits(racing):
        refuse(racing)
    return racing


def _attempt(one: Turn, turns: int, passes: float) -> Attempt:
    """An attempt is a task of so many turns."""
    from vivace.plan.accepted import Attempt

    return Attempt(seconds=one.seconds * turns, dollars=(one.dollars or 0.0) * turns, passes=passes)


def _deep(text: str) -> Attempt | None:
    from vivace.plan.accepted import Attempt

    if not text:
        return None
    try:
        seconds, dollars, passes = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is not SECONDS,DOLLARS,PASS.", param="deep") from None
    return Attempt(seconds=seconds, dollars=dollars, passes=passes)


def _outcomes(
    alone: Attempt, shared: Attempt, check: Check, tries: int, race: int, deep: Attempt | None
) -> list[Outcome]:
    """One attempt, and what was asked for beside it; candidates of a race run at the ``shared`` speed."""
    from vivace.plan.accepted import cascaded, raced, retried

    found = [retried(alone, check)]
    if tries > 1:
        found.append(retried(alone, check, tries))
    if race > 1:
        found.append(raced(shared, check, race))
    if deep:
        found += [cascaded(alone, deep, check), retried(deep, check)]
    return found


def _span(text: str, name: str) -> tuple[float, float]:
    low, mark, high = text.partition("-")
    try:
        return float(low), float(high) if mark else float(low)
    except ValueError:
        raise UsageError(f"--{name} {text!r} is neither a number nor a range like 70-100.", param=name) from None
