"""`sptnet export`."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A finished run.")],
    to: Annotated[Path, typer.Option(help="The file or folder to write.")],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            help="csv, json or coco: one file; links or copies: a folder of images for each category; imagefolder: "
            "copies for the library datasets.",
        ),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
) -> None:
    """Write the categories of a run, as edited, for other programs. Your images are only read."""
    from sptnet.export import export_run

    found = export_run(run, to, form, overwrite)
    kept = int((found.category >= 0).sum())
    dropped = f" ({len(found) - kept:,} dropped)" if kept < len(found) else ""
    print(
        f"wrote {kept:,} images in {len(set(found.category[found.category >= 0].tolist()))} categories{dropped}: {to}"
    )
