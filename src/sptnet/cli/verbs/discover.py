"""`sptnet discover`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.discover_output import plan_of_discovery, print_plan, print_result, result_of_discovery
from sptnet.cli.options import (
    BACKBONE,
    CATEGORIES,
    DEVICE,
    EPOCHS,
    JSON,
    LABELS,
    METHOD,
    MINUTES,
    NO_FOLDER_LABELS,
    NO_REPORT,
    SEED,
    SETTING,
    SKIP_DUPLICATES,
    SKIP_UNREADABLE,
    TRACK,
    UNLABELLED,
    WEIGHTS,
    discovery_settings,
)
from sptnet.cli.output import note_printer, show_json, show_line
from sptnet.cli.stopping import keeping, resumable, resuming

if TYPE_CHECKING:
    from sptnet.report.page.write import Report
    from sptnet.runtime.progress import Say


def discover(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Images: sub-folders name known categories; those in unlabelled, or in none, are unsorted."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory to write; runs/ and the folder's name.")] = None,
    labels: LABELS = None,
    unlabelled: UNLABELLED = None,
    no_folder_labels: NO_FOLDER_LABELS = False,
    skip_unreadable: SKIP_UNREADABLE = False,
    skip_duplicates: SKIP_DUPLICATES = False,
    categories: CATEGORIES = None,
    method: METHOD = None,
    minutes: MINUTES = None,
    epochs: EPOCHS = None,
    backbone: BACKBONE = None,
    weights: WEIGHTS = None,
    device: DEVICE = None,
    track: TRACK = None,
    seed: SEED = None,
    settings: SETTING = None,
    continue_: Annotated[
        Path | None,
        typer.Option(
            "--continue",
            metavar="RUN",
            help="Another round, with the edits of a run as labels.",
            autocompletion=completion.runs,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop; --out may be anything.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out after it was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    no_report: NO_REPORT = False,
    open_it: Annotated[bool, typer.Option("--open", help="Show the report in the browser.")] = False,
    as_json: JSON = False,
) -> None:
    """Sort a folder of images: recognise the categories you know, find the new ones, and write a report."""
    from sptnet.discovery.discover import Wishes, another_round, finish, first_round, resume_round
    from sptnet.errors import Misuse
    from sptnet.runtime.distributed import world
    from sptnet.runtime.progress import say

    changes = discovery_settings(
        folder=folder,
        labels=labels,
        unlabelled=unlabelled,
        no_folder_labels=no_folder_labels,
        skip_unreadable=skip_unreadable,
        skip_duplicates=skip_duplicates,
        categories=categories,
        epochs=epochs,
        backbone=backbone,
        weights=weights,
        device=device,
        seed=seed,
        settings=settings,
    ) | ({} if track is None else {"training.track": track})
    if open_it and no_report:
        raise Misuse("--open shows the report, which --no-report leaves out. Give one of them.")
    note = note_printer(as_json)
    if resume:
        if changes or method or minutes or continue_ or dry_run or overwrite or out is None:
            raise Misuse("--resume goes on with the settings of the run. Give --resume and --out alone.")
        target = out
        with resumable("discover", out):
            experiment = resume_round(out, _print_epoch())
    else:
        target = _target(folder, continue_, out)
        wishes = Wishes(None if method == "auto" else method, minutes, frozenset(changes), not no_report)
        if continue_ is None:
            discovery = first_round(target, changes, wishes, overwrite, dry_run)
        else:
            choose = method == "auto"
            discovery, n_labels = another_round(continue_, target, changes, wishes, choose, overwrite, dry_run)
            note(f"another round on {continue_}: it starts with {n_labels:,} labels")
        if dry_run and as_json:
            refusal = _what_is_there(target, overwrite, discovery.plan.config.data.folder)
            show_json(plan_of_discovery(discovery, refusal))
            return
        print_plan(discovery.plan, discovery.images, note)
        if dry_run:
            show_line("nothing was started. Leave --dry-run out to begin.")
            refusal = _what_is_there(target, overwrite, discovery.plan.config.data.folder)
            if refusal is not None:
                say(f"before it can begin: {refusal}")
            return
        with resumable("discover", target):
            experiment = discovery.train(overwrite, ["sptnet", *sys.argv[1:]], _print_epoch())
    with keeping(f"the images are sorted. Write the report with: {resuming('discover', target)}"):
        world().do_first(lambda: _print(target, finish(target, experiment, not no_report), open_it, as_json))


def _print(run: Path, report: "Report", open_it: bool, as_json: bool) -> None:
    """Print the result, and open the page if asked."""
    import webbrowser

    from sptnet.runtime.progress import say

    show_json(result_of_discovery(run, report)) if as_json else print_result(run, report)
    if open_it and report.page is not None and not webbrowser.open(report.page.absolute().as_uri()):
        say("no browser was found. Open the report by hand.")


def _target(folder: Path | None, continue_: Path | None, out: Path | None) -> Path:
    """Run directory to write."""
    from sptnet.errors import Misuse

    if continue_ is not None:
        if folder is not None:
            raise Misuse("--continue takes the images of the earlier run. Leave the folder out.")
        if out is None:
            raise Misuse("where is the new round to be written? Give another run directory with --out.")
        return out
    if folder is None:
        raise Misuse("no images given. Give a folder: sptnet discover FOLDER --out RUN")
    return out or Path("runs") / (folder.resolve().name or "run")


def _what_is_there(out: Path, overwrite: bool, data_folder: str | None) -> str | None:
    """Return why a run cannot be written into `out`, with flags; None if it can."""
    from sptnet.errors import SptnetError
    from sptnet.results.run_folder import RunFolder
    from sptnet.runtime import progress

    try:
        RunFolder(out).check_new(overwrite, data_folder)
    except SptnetError as refusal:
        return progress.spell(str(refusal))
    return None


def _print_epoch() -> "Say | None":
    """Print a line per epoch into a log; on a terminal the progress bars are enough."""
    from sptnet.runtime.progress import console

    return (lambda line: None) if console.is_terminal else None
