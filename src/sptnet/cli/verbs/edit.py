"""`sptnet edit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sptnet.results.edits.types import Edit
    from sptnet.results.run_result import RunResult

app = typer.Typer(
    help="Name, merge, split, correct and confirm the categories of a finished run. Its own files stay as they are: "
    "every edit is a line of edits.jsonl, and the last one can be undone.",
    no_args_is_help=True,
)

CATEGORY = Annotated[str, typer.Argument(help="A category, as `list` shows it.")]
REPORT = Annotated[bool, typer.Option("--report", help="Write the report page anew, with this edit.")]
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
    context: typer.Context,
    category: CATEGORY,
    to: Annotated[str, typer.Argument(help="Its new name.")],
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Give a category another name."""
    from sptnet.results.edits.types import Rename

    _add(context.obj, Rename(category, to), report, as_json)


@app.command()
def merge(
    context: typer.Context,
    categories: Annotated[list[str], typer.Argument(metavar="CATEGORY...", help="Categories to merge.")],
    into: Annotated[str, typer.Option(help="The category they become: an existing one or a new name.")],
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Merge categories into one."""
    from sptnet.results.edits.types import Merge

    _add(context.obj, Merge(tuple(categories), into), report, as_json)


@app.command()
def split(
    context: typer.Context,
    category: CATEGORY,
    parts: Annotated[int, typer.Option(help="Number of categories it really holds.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the division.")] = 0,
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Split a category by the features of its images into NAME-a (the largest), NAME-b and so on."""
    from sptnet.results.edits.types import SplitCategory

    _add(context.obj, SplitCategory(category, parts, seed), report, as_json)


@app.command()
def move(
    context: typer.Context,
    images: IMAGES,
    to: Annotated[str, typer.Option(help="The category they belong to.")],
    create: Annotated[bool, typer.Option("--create", help="Create the category if there is none.")] = False,
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Move images to another category."""
    from sptnet.results.edits.types import Move

    _add(context.obj, Move(_ids(context.obj, images), to, create), report, as_json)


@app.command()
def drop(context: typer.Context, images: IMAGES, report: REPORT = False, as_json: JSON = False) -> None:
    """Remove images from their category; they belong to none until they are moved."""
    from sptnet.results.edits.types import Drop

    _add(context.obj, Drop(_ids(context.obj, images)), report, as_json)


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
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Confirm that images are in the right category; confirmed images are labels of the next round."""
    from sptnet.results.edits.log import current
    from sptnet.results.edits.types import Confirm
    from sptnet.results.run_result import image_ids

    result = current(context.obj)
    ids = image_ids(result, targets)
    _add(
        context.obj,
        Confirm(tuple(t if t in result.names else id_ for t, id_ in zip(targets, ids, strict=True))),
        report,
        as_json,
    )


@app.command()
def count(
    context: typer.Context,
    n: Annotated[int, typer.Argument(metavar="N", help="Number of categories, known and new.")],
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Group the images into another number of categories, without training. Names follow the images."""
    from sptnet.results.edits.types import Count

    _add(context.obj, Count(n), report, as_json)


@app.command()
def undo(context: typer.Context, report: REPORT = False, as_json: JSON = False) -> None:
    """Undo the last edit that is in force."""
    from sptnet.results.edits.log import add_edits, in_force, read_edits
    from sptnet.results.edits.types import Undo, as_dict, describe_edit

    last = in_force(read_edits(context.obj))[-1:]
    state = add_edits(context.obj, [Undo()])
    what = f"undone: {describe_edit(last[0])}"
    _end(context.obj, what, state, [Undo()], report, as_json, undone=as_dict(last[0]))


@app.command()
def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="JSON file of edits, from the report.")],
    report: REPORT = False,
    as_json: JSON = False,
) -> None:
    """Apply all edits of a file, or none if one of them is impossible. Those that were applied before are skipped."""
    from sptnet.results.edits.log import add_edits, current, new_edits_of_file
    from sptnet.runtime.text import count

    edits, n_before = new_edits_of_file(context.obj, file)
    skipped = f"skipped {n_before} that {'was' if n_before == 1 else 'were'} applied before, " if n_before else ""
    state = add_edits(context.obj, edits) if edits else current(context.obj)
    what = f"{skipped}applied {count(edits, 'edit')}"
    _end(context.obj, what, state, edits, report, as_json, skipped=n_before)


@app.command("list")
def list_(context: typer.Context, as_json: JSON = False) -> None:
    """Show the categories with all edits."""
    from sptnet.cli.json_objects import categories_object
    from sptnet.cli.tables import print_categories, print_labels_to_check
    from sptnet.results.categories import describe_categories, labels_to_check
    from sptnet.results.edits.log import current

    result = current(context.obj)
    categories = describe_categories(result)
    if as_json:
        show_json({"run": context.obj, **categories_object(result, categories)})
        return
    print_categories(context.obj, categories)
    print_labels_to_check(len(labels_to_check(result)))
    dropped = int((result.category < 0).sum())
    if dropped:
        show_line(f"dropped images: {dropped:,}")


@app.command()
def log(context: typer.Context, as_json: JSON = False) -> None:
    """Show all edits in order."""
    from sptnet.results.edits.log import read_log
    from sptnet.results.edits.types import as_dict, describe_edit
    from sptnet.results.run_folder import RunFolder

    RunFolder(context.obj).config()  # raises if this is no run
    entries = read_log(context.obj)
    if as_json:
        show_json({"run": context.obj, "edits": [{"at": at, **as_dict(edit)} for at, edit in entries]})
        return
    for number, (at, edit) in enumerate(entries, start=1):
        show_line(f"{number}  {at}  {describe_edit(edit)}")
    if not entries:
        show_line("no edits yet")


def _ids(run: Path, images: list[str]) -> tuple[str, ...]:
    from sptnet.results.run_result import image_ids, read_result

    return image_ids(read_result(run), images)


def _add(run: Path, edit: "Edit", report: bool, as_json: bool) -> None:
    from sptnet.results.edits.log import add_edits
    from sptnet.results.edits.types import describe_edit

    _end(run, f"done: {describe_edit(edit)}", add_edits(run, [edit]), [edit], report, as_json)


def _end(
    run: Path,
    what: str,
    state: "RunResult",
    edits: "Sequence[Edit]",
    report: bool,
    as_json: bool,
    undone: dict[str, Any] | None = None,
    skipped: int = 0,
) -> None:
    """Print what was done, and write the page of the run anew if asked, else say that it is older than the edits."""
    from sptnet.report.page_age import has_model_pictures, tell_page
    from sptnet.results.edits.types import as_dict
    from sptnet.runtime.progress import say
    from sptnet.runtime.text import shell_line

    known, new = state.n_known, len(state.names) - state.n_known
    if not as_json:
        show_line(f"{what}; {known} known and {new} new categories")
    page, older = None, None
    if report:
        from sptnet.report.page.write import write_report

        page = write_report(run, model_pictures=has_model_pictures(run)).page
    elif (older := tell_page(run)) is not None:
        say(f"{older} is older than the edits. Renew it with: {shell_line(['sptnet', 'report', str(run)])}")
    if as_json:
        done = {"run": run, "edits": [as_dict(edit) for edit in edits], "undone": undone, "skipped": skipped}
        show_json({**done, "n_known": known, "n_new": new, "page": page, "older_page": older})
    elif page is not None:
        show_line(f"wrote {page}")
