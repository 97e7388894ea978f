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
    from sptnet.inference.predictor import load
    from sptnet.results.run_folder import RunFolder, finite

    predictor = load(run, device)
    if source is not None:
        if data is None:
            raise Misuse(f"where is {source}? Give its folder with --data DIR.")
        scores = score_benchmark(predictor, benchmark(source, data), not no_prompts)
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


def score_run(predictor: Any, run: Any, prompted: bool) -> dict[str, Any]:
    """The run's own unlabelled training images, and its test images if it has some."""
    from sptnet.data.load import SplitImages, load_image_set
    from sptnet.data.split import read_split

    image_set, unreadable = load_image_set(run.config().data)
    return score_benchmark(
        predictor, SplitImages(image_set, read_split(run.split_file, image_set), unreadable), prompted
    )


def benchmark(source: str, folder: Path) -> Any:
    """A data set of the package with its published split."""
    from sptnet.config import DataSettings
    from sptnet.data.benchmarks import find_benchmark
    from sptnet.data.load import load_data

    return load_data(DataSettings(source=find_benchmark(source).name, folder=str(folder)))  # type: ignore[arg-type]


def score_benchmark(predictor: Any, data: Any, prompted: bool) -> dict[str, Any]:
    import numpy as np

    from sptnet.errors import Misuse
    from sptnet.results.scores import score_sets

    image_set, split = data.image_set, data.split
    if predictor.n_known != split.n_known:
        raise Misuse(
            f"the model knows {predictor.n_known} categories, but the split has {split.n_known} known classes. "
            "Give the data that the model was trained for."
        )
    scored = np.concatenate([split.unlabelled, split.test])
    predicted = np.full(len(image_set), -1, dtype=np.int64)
    predicted[scored] = predictor.outputs([image_set.sources[i] for i in scored], prompted).categories
    return score_sets(image_set, split, predicted)


def score_folder(predictor: Any, folder: Path, max_unreadable: float, prompted: bool) -> dict[str, Any]:
    """Every image of a folder of categories; those whose name the model knows are old."""
    import numpy as np

    from sptnet.config import DataSettings
    from sptnet.data.load import load_image_set
    from sptnet.results.scores import score

    settings = DataSettings(folder=str(folder), max_unreadable=max_unreadable)
    image_set, _ = load_image_set(settings, limit_flag="--max-unreadable ")
    known = list(predictor.categories[: predictor.n_known])
    order = known + [name for name in image_set.names if name not in known]
    position = np.array([order.index(name) for name in image_set.names] + [-1])
    predicted = predictor.outputs(image_set.sources, prompted).categories
    scores = score(position[image_set.labels], predicted, predictor.n_known)
    return {folder.name: scores} if scores else {}
