"""`sptnet train`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sptnet.cli import completion
from sptnet.cli.options import (
    BACKBONE,
    DEVICE,
    JSON,
    SETTING,
    TRACK,
    WEIGHTS,
    given_settings,
    of_backbone,
    source_settings,
)
from sptnet.cli.stopping import resumable

if TYPE_CHECKING:
    from sptnet.config import Config


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe of the package (see `sptnet recipes list`) or a TOML file.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of images; sub-folders name known categories.")] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV of path,label instead of sub-folder names.")] = None,
    out: Annotated[Path, typer.Option(help="Run directory to write.")] = Path("runs/run"),
    settings: SETTING = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            help="A finished run to build on: SimGCD for SPTNet, GCD for muGCD.", autocompletion=completion.runs
        ),
    ] = None,
    backbone: BACKBONE = None,
    weights: WEIGHTS = None,
    device: DEVICE = None,
    track: TRACK = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    as_json: JSON = False,
) -> None:
    """Train a recipe on a folder of images and write a run directory."""
    from sptnet.config.recipes import load_recipe
    from sptnet.errors import Misuse
    from sptnet.results.run_folder import RunFolder

    plain: dict[str, Any] = {
        "data.folder": data and data.resolve(),
        "data.labels": labels and labels.resolve(),
        "seed": seed,
        "device": device,
        "training.track": track,
        **of_backbone(backbone, weights),
    }
    changes = given_settings(plain, settings)
    if resume and overwrite:
        raise Misuse("--resume and --overwrite exclude each other. Give one of them.")
    if resume:
        if recipe is not None or changes or start_from is not None:
            raise Misuse("--resume goes on with the settings of the run. Give --resume and --out alone.")
        config = RunFolder(out).config()
    elif recipe is None:
        raise Misuse("no recipe given. `sptnet recipes list` shows those of the package; sptnet is the default method.")
    else:
        config = load_recipe(recipe, source_settings(recipe, data) | changes)
        if start_from is not None:
            config = _starting_from(start_from, config)
    _run(config, changes, out, resume, overwrite, as_json)


def _tell_unused(config: "Config", changes: dict[str, Any]) -> None:
    """Say which of the given settings belong to stages that the method does not have."""
    from sptnet.methods import stages_of
    from sptnet.runtime.progress import say

    used = {config.method, *(plan.name for plan in stages_of(config))}
    of_stages = {*config.stage_names(), "kmeans"}  # sskmeans also gives the clusters that a training starts from
    unused = sorted(key for key in changes if key.split(".")[0] in of_stages - used)
    if unused:
        say(f"{', '.join(unused)}: no effect, since {config.method} has no such stage")


def _starting_from(run: Path, config: "Config") -> "Config":
    """Return the settings with the run that the method is to build on."""
    from sptnet.errors import Misuse
    from sptnet.methods import METHODS, NAMES, method_of

    if method_of(config).start == "none":
        able = [name for name, method in METHODS.items() if method.start != "none"]
        raise Misuse(
            f"{NAMES[config.method]} does not build on another run. Leave --start-from out, or train "
            f"{' or '.join(able)}."
        )
    return config.changed(**{config.method: {"start_from": str(run.resolve())}})


def _run(config: "Config", changes: dict[str, Any], out: Path, resume: bool, overwrite: bool, as_json: bool) -> None:
    from sptnet.cli.json_objects import run_object
    from sptnet.cli.output import show_json
    from sptnet.cli.tables import print_scores
    from sptnet.results.run_folder import RunFolder
    from sptnet.runtime.distributed import world
    from sptnet.training.experiment import Experiment

    folder = RunFolder(out)
    if not resume:
        folder.check_new(overwrite)
    else:
        folder.check_free()
    experiment = Experiment(config, folder)
    _tell_unused(config, changes)
    with resumable("train", out):
        scores = experiment.run(resume, overwrite, ["sptnet", *sys.argv[1:]])
    if config.training.track != "none":
        from sptnet.discovery.discover import end_training

        world().do_first(lambda: end_training(out, experiment))
    if as_json:
        world().do_first(lambda: show_json(run_object(out)))
        return
    print_scores(scores, out)
