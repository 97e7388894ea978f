"""`sptnet recipes`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line, show_text
from sptnet.runtime.text import shell_word

if TYPE_CHECKING:
    from sptnet.config.recipe_table import RecipeEntry

app = typer.Typer(help="List, show and copy the recipes of the package.", no_args_is_help=True)

NAME = Annotated[str, typer.Argument(help="A recipe of the package.", autocompletion=completion.recipes)]


@app.command("list")
def list_(
    folder: Annotated[
        str | None,
        typer.Argument(help="Only the recipes of this folder, such as cub.", autocompletion=completion.recipe_folders),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Only the recipes of this method, such as orca.", autocompletion=completion.recipe_methods),
    ] = None,
    as_json: JSON = False,
) -> None:
    """List all recipes with data set, method, published accuracy (All / Old / New) and a summary."""
    from sptnet.config.recipe_table import recipe_table

    entries = recipe_table(folder, method)
    if as_json:
        show_json({"recipes": [asdict(entry) for entry in entries]})
        return
    rows = [["name", "data set", "method", "All", "Old", "New", "what it does"], *map(_row, entries)]
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    for row in rows:
        show_line("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))


def _row(entry: "RecipeEntry") -> list[str]:
    scores = entry.published
    numbers = [f"{number:.1f}" for number in (scores.all, scores.old, scores.new)] if scores else ["-"] * 3
    remark = f" (published: {scores.of})" if scores and scores.of else ""
    return [entry.name, entry.data, entry.method, *numbers, entry.summary + remark]


@app.command()
def show(
    name: NAME,
    full: Annotated[bool, typer.Option("--full", help="With all defaults filled in.")] = False,
    as_json: JSON = False,
) -> None:
    """Print a recipe."""
    from sptnet.config.recipes import load_recipe, recipe_text, recipe_values, to_toml

    text = to_toml(load_recipe(name)) if full else recipe_text(name)
    if as_json:
        settings = load_recipe(name).model_dump(mode="json") if full else recipe_values(name)
        show_json({"name": name, "settings": settings, "text": text})
        return
    show_text(text)


@app.command()
def copy(name: NAME, file: Annotated[Path, typer.Argument(help="File to write.")], as_json: JSON = False) -> None:
    """Copy a recipe to a file, to change it."""
    from sptnet.config.recipes import recipe_text
    from sptnet.runtime.files import check_new_file, write_text_atomically

    check_new_file(file, "file")
    text = recipe_text(name)
    write_text_atomically(file, text)
    command = f"sptnet train {shell_word(str(file))} --data DIR --out RUN"
    if as_json:
        show_json({"name": name, "file": file, "next": [command]})
        return
    show_line(f"wrote {file}; use it with: {command}")
