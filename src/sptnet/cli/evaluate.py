"""`sptnet evaluate`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run, or a model directory together with --data.")],
    data: Annotated[
        Path | None, typer.Option(help="Score this folder of category sub-folders instead of the run's own images.")
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
    from sptnet.predictor import load
    from sptnet.run_folder import RunFolder, finite

    predictor = load(run, device)
    if data is not None:
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


def score_run(predictor: Any, run: Any, prompted: bool) -> dict[str, Any]:
    """The run's own unlabelled training images, and its test split if it has one."""
    from sptnet.data import load_pile
    from sptnet.scoring import score
    from sptnet.split import read_split

    pile, _ = load_pile(run.config().data)
    split = read_split(run.split_file, pile)
    scores = {}
    for name, indices in (("unlabelled", split.unlabelled), ("test", split.test)):
        if len(indices):
            predicted = predictor.outputs([pile.sources[i] for i in indices], prompted).categories
            scores[name] = score(split.target[indices], predicted, split.n_known)
    return {name: values for name, values in scores.items() if values}


def score_folder(predictor: Any, folder: Path, max_unreadable: float, prompted: bool) -> dict[str, Any]:
    """Every image of a folder of categories; those whose name the model knows are old."""
    import numpy as np

    from sptnet.config import Data
    from sptnet.data import load_pile
    from sptnet.scoring import score

    settings = Data(folder=str(folder), max_unreadable=max_unreadable)
    pile, _ = load_pile(settings, limit_flag="--max-unreadable ")
    known = list(predictor.categories[: predictor.n_known])
    order = known + [name for name in pile.names if name not in known]
    position = np.array([order.index(name) for name in pile.names] + [-1])
    predicted = predictor.outputs(pile.sources, prompted).categories
    scores = score(position[pile.labels], predicted, predictor.n_known)
    return {folder.name: scores} if scores else {}
