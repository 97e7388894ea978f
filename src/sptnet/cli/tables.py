"""Print tables of results to stdout."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sptnet.cli.output import show_line
from sptnet.runtime.text import printable, visible

if TYPE_CHECKING:
    from sptnet.results.categories import Category

FORMS = {"": "one matching (v2)", "balanced": "class-balanced (v2b)", "separate": "separate matchings (v1)"}
"""Titles of the accuracy variants, by their key in the scores."""
CATEGORY_COLUMNS = ["category", "nearest known", "new", "images", "certainty", "cohesion", "doubtful"]


def percent(value: float | None) -> str:
    """Format a share as per cent; "-" for None and NaN."""
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def print_table(title: str, columns: list[str], rows: list[list[str]], lefts: int = 1) -> None:
    """Print a table; the first `lefts` columns are left-aligned, the others right-aligned.

    Cells are printed verbatim, but for control characters, which are escaped: rich would interpret [bold] or :cat: in
    plain strings.
    """
    table = Table(title=Text(visible(title), style="table.title"), title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(Text(visible(column)), justify="left" if i < lefts else "right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console(highlight=False, width=None if Console().is_terminal else 110).print(table)


def print_categories(run: Path, categories: "Sequence[Category]") -> None:
    """Print one row per category of a run."""
    rows = [[printable(cell) for cell in row] for row in category_rows(categories)]
    print_table(f"categories of {run}", CATEGORY_COLUMNS, rows, lefts=2)


def print_labels_to_check(n: int, page: bool = True) -> None:
    """Print the number of labels that the model contradicts, if there are any; a `page` shows the images."""
    if n:
        shown = "the report shows the images" if page else "`guess` differs from `category` in predictions.csv"
        show_line(f"labels to check: {n:,} (the model contradicts them; {shown})")


def category_rows(categories: "Sequence[Category]") -> list[list[str]]:
    """Return the table as text, one row per category with `CATEGORY_COLUMNS`."""
    return [
        [
            category.name,
            category.nearest_known or "-",
            "yes" if category.is_new else "no",
            f"{category.size:,}",
            "-" if category.mean_certainty is None else f"{category.mean_certainty:.2f}",
            "-" if category.cohesion is None else f"{category.cohesion:.2f}",
            f"{len(category.doubtful):,}",
        ]
        for category in categories
    ]


def print_scores(scores: dict[str, Any], run: Path | None = None) -> None:
    """Print All/Old/New accuracy in its three variants, NMI and ARI per scored set."""
    rows = []
    for name, score in scores.items():
        for form, label in FORMS.items():
            values = score[form] if form else score
            numbers = [percent(values[key]) for key in ("all", "old", "new")]
            extra = [percent(score["nmi"]), percent(score["ari"])] if not form else ["", ""]
            rows.append([f"{name} ({score['images']} images)" if not form else "", label, *numbers, *extra])
    if rows:
        print_table("accuracy in per cent", ["images", "matching", "All", "Old", "New", "NMI", "ARI"], rows, lefts=2)
    if run is not None:
        show_line(f"run: {run}")
