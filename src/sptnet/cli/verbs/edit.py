"""`sptnet edit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.output import show_line

if TYPE_CHECKING:
    from sptnet.results.edits.types import Edit
    from sptnet.results.run_result import RunResult

app = typer.Typer(
    help="Name, merge, split, correct and confirm the categories of a finished run. Its own files stay as they are: "
    "every edit is a line of edits.jsonl, and the last one can be undone.",
    no_args_is_help=True,
)

CATEGORY = Annotated[str, typer.Argument(help="A category, as `list` shows it.")]
IMAGES = Annotated[list[str], typer.Argument(metavar="IMAGE...", help="As in predictions.csv, or paths of files.")]


@app.callback()
def run(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.", autocompletion=completion.runs)],
) -> None:
    """Keep the run for the sub-command."""
    context.obj = run


@app.command()
def rename(
    context: typer.Context, category: CATEGORY, to: Annotated[str, typer.Argument(help="Its new name.")]
) -> None:
    """Give a category another name."""
    from sptnet.results.edits.types import Rename

    _add(context.obj, Rename(category, to))


@app.command()
def merge(
    context: typer.Context,
    categories: Annotated[list[str], typer.Argument(metavar="CATEGORY...", help="Categories to merge.")],
    into: Annotated[str, typer.Option(help="The category they become: an existing one or a new name.")],
) -> None:
    """Merge categories into one."""
    from sptnet.results.edits.types import Merge

    _add(context.obj, Merge(tuple(categories), into))


@app.command()
def split(
    context: typer.Context,
    category: CATEGORY,
    parts: Annotated[int, typer.Option(help="Number of categories it really holds.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the division.")] = 0,
) -> None:
    """Split a category by the features of its images into NAME-a (the largest), NAME-b and so on."""
    from sptnet.results.edits.types import SplitCategory

    _add(context.obj, SplitCategory(category, parts, seed))


@app.command()
def move(
    context: typer.Context,
    images: IMAGES,
    to: Annotated[str, typer.Option(help="The category they belong to.")],
    create: Annotated[bool, typer.Option("--create", help="Create the category if there is none.")] = False,
) -> None:
    """Move images to another category."""
    from sptnet.results.edits.types import Move

    _add(context.obj, Move(_ids(context.obj, images), to, create))


@app.command()
def drop(context: typer.Context, images: IMAGES) -> None:
    """Remove images from their category; they belong to none until they are moved."""
    from sptnet.results.edits.types import Drop

    _add(context.obj, Drop(_ids(context.obj, images)))


@app.command()
def confirm(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="CATEGORY|IMAGE...",
            help="Categories with all their images, or images as in predictions.csv or paths of files. A name that is "
            "both is the category.",
        ),
    ],
) -> None:
    """Confirm that images are in the right category; confirmed images are labels of the next round."""
    from sptnet.results.edits.log import current
    from sptnet.results.edits.types import Confirm
    from sptnet.results.run_result import image_ids

    result = current(context.obj)
    ids = image_ids(result, targets)
    _add(context.obj, Confirm(tuple(t if t in result.names else id_ for t, id_ in zip(targets, ids, strict=True))))


@app.command()
def count(
    context: typer.Context,
    n: Annotated[int, typer.Argument(metavar="N", help="Number of categories, known and new.")],
) -> None:
    """Group the images into another number of categories, without training. Names follow the images."""
    from sptnet.results.edits.types import Count

    _add(context.obj, Count(n))


@app.command()
def undo(context: typer.Context) -> None:
    """Undo the last edit that is in force."""
    from sptnet.results.edits.log import add_edits, in_force, read_edits
    from sptnet.results.edits.types import Undo, describe_edit

    last = in_force(read_edits(context.obj))[-1:]
    state = add_edits(context.obj, [Undo()])
    _print_done(f"undone: {describe_edit(last[0])}", state)


@app.command()
def apply(
    context: typer.Context, file: Annotated[Path, typer.Argument(help="JSON file of edits, from the report.")]
) -> None:
    """Apply all edits of a file, or none if one of them is impossible."""
    from sptnet.results.edits.log import add_edits, read_edits_file
    from sptnet.runtime.text import count

    edits = read_edits_file(file)
    _print_done(f"applied {count(edits, 'edit')}", add_edits(context.obj, edits))


@app.command("list")
def list_(context: typer.Context) -> None:
    """Show the categories with all edits."""
    from sptnet.cli.tables import print_categories, print_labels_to_check
    from sptnet.results.categories import describe_categories, labels_to_check
    from sptnet.results.edits.log import current

    result = current(context.obj)
    print_categories(context.obj, describe_categories(result))
    print_labels_to_check(len(labels_to_check(result)))
    dropped = int((result.category < 0).sum())
    if dropped:
        show_line(f"dropped images: {dropped:,}")


@app.command()
def log(context: typer.Context) -> None:
    """Show all edits in order."""
    from sptnet.results.edits.log import read_log
    from sptnet.results.edits.types import describe_edit
    from sptnet.results.run_folder import RunFolder

    RunFolder(context.obj).config()  # raises if this is no run
    entries = read_log(context.obj)
    for number, (at, edit) in enumerate(entries, start=1):
        show_line(f"{number}  {at}  {describe_edit(edit)}")
    if not entries:
        show_line("no edits yet")


def _ids(run: Path, images: list[str]) -> tuple[str, ...]:
    from sptnet.results.run_result import image_ids, read_result

    return image_ids(read_result(run), images)


def _add(run: Path, edit: "Edit") -> None:
    from sptnet.results.edits.log import add_edits
    from sptnet.results.edits.types import describe_edit

    _print_done(f"done: {describe_edit(edit)}", add_edits(run, [edit]))


def _print_done(what: str, state: "RunResult") -> None:
    new = len(state.names) - state.n_known
    show_line(f"{what}; {state.n_known} known and {new} new categories")
