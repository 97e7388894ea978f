"""`sptnet report`."""

from pathlib import Path
from typing import Annotated

import typer

from sptnet.cli import completion
from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line


def report(
    run: Annotated[Path, typer.Argument(help="A finished run.", autocompletion=completion.runs)],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page to write; report.html in the run.")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    without_model: Annotated[
        bool, typer.Option("--no-model-pictures", help="Leave out prompts and attention; the model is not loaded.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Write a page about a run with its edits: categories, a map, the curves. Categories can be corrected in it."""
    import webbrowser

    from sptnet.report.page.write import write_report
    from sptnet.runtime.progress import say

    page = write_report(run, out, model_pictures=not without_model).page
    assert page is not None
    n_bytes = page.stat().st_size
    if as_json:
        show_json({"run": run, "page": page, "bytes": n_bytes})
    else:
        show_line(f"wrote {page} ({n_bytes / 1e6:.1f} MB)")
    if open_it and not webbrowser.open(page.absolute().as_uri()):
        say("no browser was found. Open the page by hand.")
