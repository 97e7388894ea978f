"""`sptnet evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            help="A finished run, or a model directory together with --data.", autocompletion=completion.runs
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(help="Score this folder of category sub-folders instead of the run's own images.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="--data holds this benchmark (cub, cars, ...): score its published split.",
            autocompletion=completion.benchmarks,
        ),
    ] = None,
    max_unreadable: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unreadable images of --data that is still skipped.")
    ] = 0.01,
    no_prompts: Annotated[bool, typer.Option("--no-prompts", help="Leave the learned prompts out.")] = False,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", autocompletion=completion.devices)
    ] = "auto",
    as_json: JSON = False,
) -> None:
    """Score a model: All/Old/New accuracy in all variants, NMI and ARI."""
    from sptnet.cli.tables import print_scores
    from sptnet.inference.evaluate import evaluate as score_model

    scores = score_model(run, data, source, max_unreadable, not no_prompts, device)
    show_json(scores) if as_json else print_scores(scores)
