"""`sptnet demo`."""

from pathlib import Path
from typing import Annotated

import typer

from sptnet.cli.options import JSON
from sptnet.cli.output import show_json, show_line


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the runs of an earlier demo.")] = False,
    all_methods: Annotated[
        bool, typer.Option("--all", help="Also the systems that SPTNet is compared with, in several times the time.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Show the report in the browser.")] = False,
    as_json: JSON = False,
) -> None:
    """Discover handwritten digits: 0 to 4 are known, 5 to 9 are new. Takes a few minutes on two CPU cores."""
    import webbrowser
    from dataclasses import asdict

    from sptnet.cli.tables import percent, print_table
    from sptnet.discovery.demo import MAIN, run_demo
    from sptnet.report.page.write import write_report
    from sptnet.runtime.progress import say

    rows, methods = [], []
    for row in run_demo(out, seed, overwrite, say, all_methods):
        methods.append(asdict(row))
        numbers = [percent(row.all), percent(row.old), percent(row.new)]
        rows.append([row.method, *numbers, f"{row.seconds:.0f}", f"{row.trained_parameters:,}"])
        say(f"{row.method}: All {numbers[0]}  Old {numbers[1]}  New {numbers[2]}  ({row.seconds:.0f} s)")
    page = write_report(out / MAIN).page
    assert page is not None
    address = page.absolute().as_uri()
    opened = open_it and webbrowser.open(address)
    if as_json:
        show_json({"out": out, "methods": methods, "pictures": out / MAIN / "categories", "page": page})
        return
    print_table(
        "unlabelled digits sorted, in per cent",
        ["method", "All", "Old", "New", "seconds", "trained parameters"],
        rows,
    )
    show_line("The seconds do not include the model that a method starts from: SimGCD for SPTNet, GCD for muGCD.")
    show_line("Single seeds differ by a few points; docs/results.md has the means of five.")
    show_line(f"pictures of the categories found: {out / MAIN / 'categories'}")
    show_line(f"report of SPTNet: {page}")
    if not opened:
        show_line(f"open it in a browser: {address}")
