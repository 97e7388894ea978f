"""`sptnet figures`."""

from pathlib import Path
from typing import Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.flags import flags_of, with_flags
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line


def figures(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Finished runs, shown side by side.", autocompletion=completion.runs),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write PNG and PDF files in.")] = Path("figures"),
    only: Annotated[str, typer.Option(help="Some of tsne,attention,prompts,accuracy; all if not given.")] = "",
    image: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Image for the attention maps, by its id in predictions.csv; may be repeated."),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            metavar="ROW,COLUMN",
            help="Query patch of the attention maps; 1,1 is the top left, the default is the centre.",
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Share of the patches shown in red; 0.1 for the class token and 0.6 for a patch by default."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.", autocompletion=completion.devices)
    ] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace figures of the same names.")] = False,
    as_json: JSON = False,
) -> None:
    """Draw runs for a paper: t-SNE, attention maps, prompts, accuracy against a setting. Runs are only read."""
    from sptnet.report.figures.attention_maps import parse_patch
    from sptnet.report.figures.write import FILES, FigureOptions, write_figures
    from sptnet.runtime.compute import choose_compute

    options = FigureOptions(
        only=[name.strip() for name in only.split(",")] if only else tuple(FILES),
        images=image or (),
        patch=None if patch is None else parse_patch(patch),
        share=share,
    )
    written = write_figures(runs, out, options, choose_compute(device), overwrite)
    left_out = [with_flags(reason, flags_of(context.command)) for reason in written.left_out]
    if as_json:
        show_json({"files": written.files, "left_out": left_out})
        return
    for file in written.files:
        show_line(str(file))
    for reason in left_out:
        show_line(f"left out: {reason}")
