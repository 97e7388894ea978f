"""`sptnet predict`."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run or a model directory.")],
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; stdout if not given.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    max_unreadable: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unreadable images that is still skipped.")
    ] = 0.01,
) -> None:
    """Sort images with a trained model: one row an image with its category and certainty.

    Of a run that was edited, the categories have the names that they were given.
    """
    from sptnet.edited_names import names_for
    from sptnet.errors import Misuse
    from sptnet.predictor import load
    from sptnet.progress import say, tracker
    from sptnet.readable import drop_unreadable
    from sptnet.wording import printable

    predictor, names = load(run, device), names_for(run)
    if out is not None and out.exists():
        raise Misuse(f"{out} exists already. Give another file with --out.")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    pile, unreadable = drop_unreadable(
        as_pile(images), max_unreadable, tracker("reading images"), limit_flag="--max-unreadable "
    )
    for problem in unreadable:
        say(f"skipped {printable(problem.name)}: {problem.reason}")
    outputs = predictor.outputs(pile.sources)
    certainty = outputs.probabilities.max(1)
    stream = out.open("w", encoding="utf-8", errors="surrogateescape", newline="") if out else sys.stdout
    table = csv.writer(stream)
    table.writerow(["image", "category", "is_new", "certainty"])
    categories, called, n_known = outputs.categories, predictor.categories, predictor.n_known
    if names is not None:
        categories, called, n_known = names.translate(categories, outputs.unit_features), names.names, names.n_known
    for i, category in enumerate(categories):
        new = "yes" if category >= n_known else "no"
        table.writerow([pile.ids[i], called[category], new, f"{certainty[i]:.4f}"])
    if out:
        stream.close()
        say(f"sorted {len(pile)} images into {len(set(categories.tolist()))} categories: {out}")


def as_pile(paths: list[Path]):  # type: ignore[no-untyped-def]
    """The images named, and all those below the folders named."""
    import numpy as np

    from sptnet.errors import Misuse
    from sptnet.images import find_images
    from sptnet.pile import Pile

    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise Misuse(f"there is no {missing[0]}. Give image files or folders of images.")
    files = list(dict.fromkeys(f for path in paths for f in (find_images(path) if path.is_dir() else [path])))
    if not files:
        raise Misuse(
            f"no images found in {paths[0]}/. Give a folder that holds JPEG, PNG, WebP, BMP, TIFF or GIF files."
        )
    unknown = np.full(len(files), -1, dtype=np.int64)
    return Pile("images", tuple(map(str, files)), tuple(files), (), unknown, None, np.zeros(len(files), dtype=np.bool_))
