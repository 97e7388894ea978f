"""What all figures share: one look whatever the user's own settings, and files that are the same every time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from sptnet.runtime.files import write_atomically
from sptnet.runtime.text import printable

FORMATS = ("png", "pdf")
DPI = 300
PAGE_WIDTH = 7.0
"""Inches; two columns of a paper."""
LOOK: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters: they can be searched, copied and edited
}


@dataclass(frozen=True)
class Drawn:
    """Figures by name, and what could not be drawn, each with the reason and the way out."""

    figures: dict[str, Figure] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@contextmanager
def house_style() -> Iterator[None]:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOK)
        yield


def files_of(out: Path, name: str) -> list[Path]:
    return [out / f"{name}.{form}" for form in FORMATS]


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """The figure as PNG and as PDF, without the date."""
    out.mkdir(parents=True, exist_ok=True)
    paths = files_of(out, name)
    for path, form in zip(paths, FORMATS, strict=True):
        undated = {"CreationDate": None} if form == "pdf" else {}
        write_atomically(path, lambda part, form=form, undated=undated: _write(figure, part, form, undated))  # type: ignore[misc]
    return paths


def _write(figure: Figure, path: Path, form: str, metadata: dict[str, Any]) -> None:
    figure.savefig(path, format=form, dpi=DPI, metadata=metadata)


def short(name: str, most: int = 28) -> str:
    """A name as it fits in a figure: on one line, and cut in its middle if it is long."""
    text = printable(name)
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
