"""`sptnet recipes`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at the recipes of the package, and take one to change.", no_args_is_help=True)

NAME = Annotated[str, typer.Argument(help="A recipe of the package.")]


@app.command("list")
def list_() -> None:
    """Show all recipes with their first line."""
    from sptnet.cli.tables import print_table
    from sptnet.recipe_book import recipe_names, recipe_text

    rows = [[name, recipe_text(name).splitlines()[0].lstrip("# ")] for name in recipe_names()]
    print_table("recipes", ["name", "what it does"], rows, lefts=2)


@app.command()
def show(
    name: NAME,
    full: Annotated[bool, typer.Option("--full", help="With all defaults filled in.")] = False,
) -> None:
    """Print a recipe."""
    from sptnet.recipe_book import load_recipe, recipe_text, to_toml

    print(to_toml(load_recipe(name)) if full else recipe_text(name), end="")


@app.command()
def copy(name: NAME, file: Annotated[Path, typer.Argument(help="Where to write it.")]) -> None:
    """Copy a recipe to a file of your own, to change it."""
    from sptnet.errors import Misuse
    from sptnet.recipe_book import recipe_text

    if file.exists():
        raise Misuse(f"{file} exists already. Give another name.")
    text = recipe_text(name)
    file.write_text(text, encoding="utf-8")
    print(f"wrote {file}; use it with: sptnet train {file} --data DIR --out RUN")
