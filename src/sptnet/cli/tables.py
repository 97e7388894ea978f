"""Printing results on stdout."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

FORMS = {"": "one matching (v2)", "balanced": "class-balanced (v2b)", "separate": "separate matchings (v1)"}


def percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def print_table(title: str, columns: list[str], rows: list[list[str]], lefts: int = 1) -> None:
    """Every text is shown as it is: as plain strings, rich would take [bold] or :cat: in a name for a command."""
    table = Table(title=Text(title, style="table.title"), title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i < lefts else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False, width=None if Console().is_terminal else 110).print(table)


def print_scores(scores: dict[str, Any], where: Path | None = None) -> None:
    """All/Old/New in the three forms, NMI and ARI, for every set that was scored."""
    rows = []
    for name, score in scores.items():
        for form, label in FORMS.items():
            values = score[form] if form else score
            numbers = [percent(values[key]) for key in ("all", "old", "new")]
            extra = [percent(score["nmi"]), percent(score["ari"])] if not form else ["", ""]
            rows.append([f"{name} ({score['images']} images)" if not form else "", label, *numbers, *extra])
    if rows:
        print_table("accuracy in per cent", ["images", "matching", "All", "Old", "New", "NMI", "ARI"], rows, lefts=2)
    if where is not None:
        print(f"run: {where}")
