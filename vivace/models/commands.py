"""``vivace models``: list, pull, path, remove, add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.models.catalogue import ModelInfo

models_app = typer.Typer(
    no_args_is_help=True, help="The model files: list, pull, add and remove them, or tell where one is."
)

Name = Annotated[str, typer.Argument(help="A name from 'vivace models list'.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@models_app.callback()
def _settings(context: typer.Context) -> None:
    if not isinstance(context.obj, Settings):
        context.obj = Settings()


@models_app.command("list")
def list_models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the known models and whether their files are here."""
    from vivace.models.catalogue import load_catalogue
    from vivace.models.store import is_present, recorded

    settings: Settings = context.obj
    models = load_catalogue(settings)
    if as_json:
        print(json.dumps([_as_dict(info, settings) for info in models.values()], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    from vivace.models.files import size_text

    table = Table(box=None, pad_edge=False)
    for column in ("name", "for", "parameters", "size", "window", "licence", "file"):
        table.add_column(column, justify="right" if column in ("parameters", "size", "window") else "left")
    for info in (recorded(info, settings) for info in models.values()):
        table.add_row(
            info.name,
            info.lane,
            f"{info.parameters / 1e6:,.0f} M",
            size_text(info.bytes) if info.bytes else "unknown",
            f"{info.context_window:,}",
            info.licence,
            "present" if is_present(info, settings) else "-",
        )
    Console().print(table)


@models_app.command("pull")
def pull_model(
    context: typer.Context,
    name: Name,
    source: Annotated[str, typer.Option(help="auto, or only one of: cache, hub, mirror.")] = "auto",
) -> None:
    """Fetch the file of a model: from this machine's cache, else the hub, else the mirror."""
    from vivace.models.catalogue import find_model
    from vivace.models.progress import show_progress
    from vivace.models.pull import pull

    settings: Settings = context.obj
    info = find_model(name, settings)
    with show_progress(info.name) as report:
        pull(info, settings, source, report)


@models_app.command("path")
def model_file(context: typer.Context, name: Name) -> None:
    """Print the path of a model's verified file, and nothing else."""
    from vivace.models.catalogue import find_model
    from vivace.models.store import model_path

    print(model_path(find_model(name, context.obj), context.obj))


@models_app.command("remove")
def remove_model(context: typer.Context, name: Name) -> None:
    """Delete a model's file and partial downloads; a file that you added is only forgotten."""
    from vivace.models.catalogue import find_model
    from vivace.models.store import remove

    info = find_model(name, context.obj)
    removed = remove(info, context.obj)
    what = "Forgot" if info.path else "Removed"
    typer.echo(f"{what} {name}." if removed else f"There was nothing of {name} to remove.", err=True)


@models_app.command("add")
def add_model(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="PATH_OR_HUB_REPO", help="A .gguf file, a folder of safetensors, or owner/name[:file.gguf]."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Its name here; made from the file's name otherwise.")] = None,
    as_json: AsJson = False,
) -> None:
    """Register a GGUF file or safetensors folder of your own, or download one from a hub repository."""
    from vivace.models.catalogue import load_added
    from vivace.models.progress import show_progress
    from vivace.models.store import add

    before = load_added(context.obj)
    with show_progress(name or Path(source).name) as report:
        info = add(source, context.obj, name, report)
    if as_json:
        print(json.dumps(_as_dict(info, context.obj), indent=2))
    else:
        what = "Already there as" if info.name in before else "Added"
        typer.echo(f"{what} {info.name}: {info.architecture}, window {info.context_window:,}.", err=True)


def _as_dict(info: ModelInfo, settings: Settings) -> dict[str, object]:
    from dataclasses import asdict

    from vivace.models.store import is_present, place, recorded

    info = recorded(info, settings)
    unknown = {} if info.sha256 else {"bytes": None, "sha256": None}
    return {**asdict(info), **unknown, "present": is_present(info, settings), "path": str(place(info, settings))}
