"""`sptnet export`."""

from pathlib import Path
from typing import Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line


def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="A finished run; for the model itself also a model directory.", autocompletion=completion.runs
        ),
    ],
    to: Annotated[Path, typer.Option(help="The file or folder to write.")],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            help="csv, json or coco: one file; links or copies: a folder of images per category; imagefolder: "
            "copies for the library datasets; torch or onnx: the model itself.",
            autocompletion=completion.export_forms,
        ),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="csv without the column duplicate_of, for which every image is read.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Write the categories of a run, as edited, or its model for other programs. Your images are only read."""
    from sptnet.errors import Misuse
    from sptnet.results.export.files import FORMS, MODEL_FORMS, export_run

    if form in MODEL_FORMS:
        from sptnet.inference.export_model import export_model

        card = export_model(run, to, form, overwrite)
        if as_json:
            about = {"run": run, "form": form, "to": to, "categories": len(card.categories)}
            show_json({**about, "images": None, "dropped": None})
            return
        show_line(f"wrote the model of {len(card.categories)} categories: {to}")
        return
    if form not in FORMS:
        raise Misuse(f"there is no export as {form}. Choose from: {', '.join((*FORMS, *MODEL_FORMS))}.")
    result = export_run(run, to, form, overwrite, quick)
    kept = result.category[result.category >= 0]
    if as_json:
        about = {"run": run, "form": form, "to": to, "categories": len(set(kept.tolist()))}
        show_json({**about, "images": len(kept), "dropped": len(result) - len(kept)})
        return
    dropped = f" ({len(result) - len(kept):,} dropped)" if len(kept) < len(result) else ""
    show_line(f"wrote {len(kept):,} images in {len(set(kept.tolist()))} categories{dropped}: {to}")
