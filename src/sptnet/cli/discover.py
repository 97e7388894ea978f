"""`sptnet discover`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sptnet.cli.discover_text import show_found, tell_plan
from sptnet.cli.options import BACKBONE, DEVICE, SETTING, WEIGHTS, given_settings, of_backbone
from sptnet.cli.stopping import can_go_on

if TYPE_CHECKING:
    from sptnet.config import Config
    from sptnet.data.load import SplitImages
    from sptnet.discovery.plan.plan import Plan
    from sptnet.results.run_folder import RunFolder
    from sptnet.training.experiment import Experiment


def discover(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Images: sub-folders name known categories; those in unlabelled, or in none, are unsorted."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory to write; runs/ and the folder's name.")] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV of path,label instead of sub-folder names.")] = None,
    unlabelled: Annotated[str | None, typer.Option(help="Sub-folder of unsorted images, if called otherwise.")] = None,
    categories: Annotated[
        str | None, typer.Option(metavar="N|auto", help="How many there are, known and new; auto counts them.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="auto, sptnet, simgcd, gcd, sskmeans or kmeans; auto takes what the time allows.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time there is: 30 on a CPU, 240 on a GPU.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of training instead of what the time allows.")
    ] = None,
    backbone: BACKBONE = None,
    weights: WEIGHTS = None,
    device: DEVICE = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    settings: SETTING = None,
    continue_: Annotated[
        Path | None, typer.Option("--continue", metavar="RUN", help="Another round, with the edits of a run as labels.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out after it was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Leave the report page out.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Show the report in the browser.")] = False,
) -> None:
    """Sort a folder of images: recognise the categories you know, find the new ones, and write a report."""
    from sptnet.discovery.discover import epoch_settings
    from sptnet.errors import Misuse
    from sptnet.runtime.distributed import world

    plain = {
        "data.folder": folder and folder.resolve(),
        "data.labels": labels and labels.resolve(),
        "data.unlabelled": unlabelled,
        "n_categories": categories and (int(categories) if categories.isdecimal() else categories),
        "device": device,
        "seed": seed,
        **of_backbone(backbone, weights),
    }
    changes = given_settings(plain | epoch_settings(epochs), settings)
    if open_it and no_report:
        raise Misuse("--open shows the report, which --no-report leaves out. Give one of them.")
    if resume:
        told = changes or method or minutes or continue_ or dry_run or overwrite
        if told or out is None:
            raise Misuse("--resume goes on with the settings of the run. Give --resume and --out alone.")
        _go_on(out)
        target = out
    else:
        target = _place(folder, continue_, out)
        world().do_first(lambda: _check_place(target, overwrite))
        wish = None if method == "auto" else method
        if continue_ is not None:
            begun = _another_round(continue_, target, changes, wish, minutes, method == "auto", not no_report)
        else:
            begun = _first_round(target, changes, wish, minutes, not no_report)
        if dry_run:
            print("nothing was started. Leave --dry-run out to begin.")
            return
        _begin(*begun, target, overwrite)
    world().do_first(lambda: _finish(target, not no_report, open_it))


def _place(folder: Path | None, continue_: Path | None, out: Path | None) -> Path:
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


def _check_place(out: Path, overwrite: bool) -> None:
    """Asked before minutes are spent; whether what is there may be replaced is asked again when it is."""
    from sptnet.errors import Misuse

    if out.is_file():
        raise Misuse(f"{out} is a file. Give a folder that does not exist yet with --out.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise Misuse(f"{out} is not empty. Go on with --resume, replace it with --overwrite, or give another --out.")


Begun = tuple["Plan", "SplitImages", Mapping[str, str]]


def _first_round(out: Path, changes: dict[str, Any], method: str | None, minutes: float | None, report: bool) -> Begun:
    from sptnet.discovery.discover import AUTO, make_settings, plan_for, read_images
    from sptnet.results.run_folder import refuse_among_images

    config = make_settings(AUTO, changes)
    refuse_among_images(out, config.data.folder)
    config, data = read_images(config)
    plan = plan_for(config, data, out, minutes, method, frozenset(changes), report)
    tell_plan(plan, data)
    return plan, data, {}


def _another_round(
    earlier: Path,
    out: Path,
    changes: dict[str, Any],
    method: str | None,
    minutes: float | None,
    choose: bool,
    report: bool,
) -> Begun:
    """With the earlier settings, unless told otherwise, or the earlier run had no labels to learn from."""
    from sptnet.discovery.discover import change_settings, plan_for
    from sptnet.discovery.plan.plan import PLANNED
    from sptnet.discovery.rounds import LABELS, labels_text, next_round, read_round
    from sptnet.errors import Misuse
    from sptnet.results.run_folder import refuse_among_images

    if "data.labels" in changes:
        raise Misuse("--continue takes its labels from the edits of the earlier run. Leave --labels out.")
    if out.resolve() == earlier.resolve():
        raise Misuse(f"the new round would replace {earlier}, which it builds on. Give another --out.")
    found = next_round(earlier, out)
    config = change_settings(found.config, changes)
    refuse_among_images(out, config.data.folder)
    data = read_round(config, found.labels)
    given, because = set(frozenset(changes)), "as asked"
    if method is None and minutes is None and not choose and found.had_labels:
        method, given, because = config.method, given | PLANNED, "as before"
    plan = plan_for(config, data, out, minutes, method, given, report, because)
    print(f"another round on {earlier}: it starts with {len(found.labels):,} labels", flush=True)
    tell_plan(plan, data)
    return plan, data, {LABELS: labels_text(found.labels)}


def _begin(plan: "Plan", data: "SplitImages", files: Mapping[str, str], out: Path, overwrite: bool) -> None:
    from sptnet.results.run_folder import RunFolder

    experiment = _experiment(plan.config, RunFolder(out), data)
    with can_go_on("discover", out):
        experiment.run(False, overwrite, ["sptnet", *sys.argv[1:]], files)


def _go_on(out: Path) -> None:
    from sptnet.results.run_folder import RunFolder

    run = RunFolder(out)
    experiment = _experiment(run.config(), run)
    with can_go_on("discover", out):
        experiment.run(resume=True)


def _finish(run: Path, report: bool, open_it: bool) -> None:
    """The token bank goes: it may be large, and a finished run has no use for it."""
    import shutil

    if (run / "tokens").is_dir():
        shutil.rmtree(run / "tokens")
    show_found(run, report, open_it)


def _experiment(config: "Config", run: "RunFolder", data: "SplitImages | None" = None) -> "Experiment":
    """On a terminal the bars tell enough; a log gets a line an epoch."""
    from sptnet.runtime.progress import console, say
    from sptnet.training.experiment import Experiment

    return Experiment(config, run, data, tell_epoch=(lambda line: None) if console.is_terminal else say)
