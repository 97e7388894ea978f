"""`sptnet predict`."""

import io
import os
from pathlib import Path
from typing import Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_csv, show_json
from sptnet.cli.stopping import keeping


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run or a model directory.", autocompletion=completion.runs)],
    images: Annotated[list[Path] | None, typer.Argument(help="Images, or folders of images.")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; stdout if not given.")] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", autocompletion=completion.devices)
    ] = "auto",
    max_unreadable: Annotated[
        float, typer.Option(min=0, max=1, help="Share of unreadable images that is still skipped.")
    ] = 0.01,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Skip unreadable images, however many.")
    ] = False,
    parts: Annotated[
        Path | None,
        typer.Option(help="Folder for CSV files of --part-size images each; a stopped job resumes when started again."),
    ] = None,
    part_size: Annotated[int, typer.Option(min=1, help="Images per part.")] = 10_000,
    list_file: Annotated[
        Path | None, typer.Option("--list", metavar="FILE", help="Text file of images, one path per line.")
    ] = None,
    features: Annotated[
        bool, typer.Option("--features", help="With --parts: also the features of each part's images, as safetensors.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Sort images with a trained model: one row per image with its category and certainty.

    The categories of an edited run have their edited names. With --parts, several processes started by torchrun share
    the work. On stdout, control characters in names are escaped.
    """
    from dataclasses import asdict

    from sptnet.errors import Misuse
    from sptnet.inference.predict_files import predict_parts, predict_table
    from sptnet.runtime.progress import say
    from sptnet.runtime.torchrun import rank_from_environment

    if out is not None and parts is not None:
        raise Misuse("--out is one table and --parts a folder of them. Give one of the two.")
    if features and parts is None:
        raise Misuse("features are written beside parts. Give a folder for them with --parts DIR.")
    if skip_unreadable:
        max_unreadable = 1.0
    if parts is None:
        table = io.StringIO(newline="")
        predicted = predict_table(
            run, images or [], out or table, list_file=list_file, device=device, max_unreadable=max_unreadable
        )
        if as_json:
            unreadable = [{"image": problem.name, "reason": problem.reason} for problem in predicted.unreadable]
            rows = [asdict(row) for row in predicted.rows] if out is None else None
            show_json({"run": run, "images": len(predicted.rows), "unreadable": unreadable, "out": out, "rows": rows})
        elif out is None:
            show_csv(table.getvalue())
        return
    with keeping("whole parts are kept. Start the same command again to go on"):
        tally = predict_parts(
            run,
            images or [],
            parts,
            part_size=part_size,
            features=features,
            list_file=list_file,
            device=device,
            max_unreadable=max_unreadable,
        )
    if as_json:
        show_json({"run": run, "parts": parts, **asdict(tally)})
        return
    rank = rank_from_environment(os.environ)
    process = f"process {rank.rank + 1} of {rank.size}: " if rank.size > 1 else ""
    say(f"{process}parts done: {tally.done:,}, there already: {tally.skipped:,}, in {parts}")
