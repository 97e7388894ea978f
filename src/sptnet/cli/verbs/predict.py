"""`sptnet predict`."""

import os
from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run or a model directory.")],
    images: Annotated[list[Path] | None, typer.Argument(help="Images, or folders of images.")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; stdout if not given.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    max_unreadable: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unreadable images that is still skipped.")
    ] = 0.01,
    parts: Annotated[
        Path | None,
        typer.Option(help="Folder for a CSV file a part, for any number of images; started again, it goes on."),
    ] = None,
    part_size: Annotated[int, typer.Option(min=1, help="Images a part.")] = 10_000,
    list_file: Annotated[
        Path | None, typer.Option("--list", metavar="FILE", help="Text file of images, one path a line.")
    ] = None,
    features: Annotated[
        bool, typer.Option("--features", help="With --parts: also the features of each part's images, as safetensors.")
    ] = False,
) -> None:
    """Sort images with a trained model: one row an image with its category and certainty.

    Of a run that was edited, the categories have the names that they were given. With --parts, several processes
    started by torchrun share the work.
    """
    from sptnet.errors import Misuse
    from sptnet.inference.bulk.image_list import named_images
    from sptnet.inference.bulk.job import describe_job, open_folder
    from sptnet.inference.bulk.tables import NamedPredictor, write_parts, write_table
    from sptnet.inference.predictor import load
    from sptnet.results.edits.names import names_for
    from sptnet.runtime.progress import say
    from sptnet.runtime.torchrun import rank_from_environment

    here = rank_from_environment(os.environ)
    if here.size > 1 and parts is None:
        raise Misuse("several processes cannot write one table. Give a folder for their parts with --parts DIR.")
    if out is not None and parts is not None:
        raise Misuse("--out is one table and --parts a folder of them. Give one of the two.")
    if features and parts is None:
        raise Misuse("features are written beside parts. Give a folder for them with --parts DIR.")
    if not images and list_file is None:
        raise Misuse("no images given. Give images, folders of images, or a list of them with --list FILE.")
    if out is not None and out.exists():
        raise Misuse(f"{out} exists already. Give another file with --out.")
    named = NamedPredictor(load(run, device, here.local_rank), names_for(run), features)
    listed = named_images(images or [], list_file)
    if parts is None:
        write_table(named, listed.paths, out, max_unreadable)
    else:
        open_folder(parts, describe_job(run, listed, part_size, features), here)
        tally = write_parts(named, listed.paths, parts, part_size, max_unreadable, here)
        who = f"process {here.rank + 1} of {here.size}: " if here.size > 1 else ""
        say(f"{who}parts done: {tally.done:,}, there already: {tally.skipped:,}, in {parts}")
