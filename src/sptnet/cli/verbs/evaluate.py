"""`sptnet evaluate`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run, or a model directory together with --data.")],
    data: Annotated[
        Path | None, typer.Option(help="Score this folder of category sub-folders instead of the run's own images.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="--data holds this benchmark (cub, cars, ...): score its published split.")
    ] = None,
    max_unreadable: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unreadable images of --data that is still skipped.")
    ] = 0.01,
    no_prompts: Annotated[bool, typer.Option("--no-prompts", help="Leave the learned prompts out.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a model: All/Old/New in all forms, NMI and ARI."""
    from sptnet.cli.tables import print_scores
    from sptnet.errors import Misuse
    from sptnet.inference.evaluate import score_benchmark, score_folder, score_run
    from sptnet.inference.predictor import load
    from sptnet.results.run_folder import RunFolder, finite

    predictor = load(run, device)
    if source is not None:
        if data is None:
            raise Misuse(f"where is {source}? Give its folder with --data DIR.")
        scores = score_benchmark(predictor, source, data, not no_prompts)
    elif data is not None:
        scores = score_folder(predictor, data, max_unreadable, not no_prompts)
    elif RunFolder(run).is_run:
        scores = score_run(predictor, RunFolder(run), not no_prompts)
    else:
        raise Misuse(f"{run} is a model directory without data. Give a folder to score with --data DIR.")
    if not scores:
        raise Misuse(
            "nobody knows the truth of these images, so there is nothing to score. Give sorted ones by --data."
        )
    print(json.dumps(finite(scores))) if as_json else print_scores(scores)
