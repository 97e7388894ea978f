"""Style and files of all figures, independent of the user's matplotlib settings and of the date."""

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
"""Width of two columns of a paper in inches."""
STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: text can be searched, copied and edited
}


@dataclass(frozen=True)
class Drawn:
    """Figures by name, and messages about those that could not be drawn."""

    figures: dict[str, Figure] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@contextmanager
def figure_style() -> Iterator[None]:
    """Use matplotlib's defaults and the style of the figures."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def files_of(out: Path, name: str) -> list[Path]:
    """Return the files of a figure: PNG and PDF."""
    return [out / f"{name}.{form}" for form in FORMATS]


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write the figure as PNG and PDF, without the date."""
    out.mkdir(parents=True, exist_ok=True)
    paths = files_of(out, name)
    for path, form in zip(paths, FORMATS, strict=True):
        undated = {"CreationDate": None} if form == "pdf" else {}
        write_atomically(path, lambda part, form=form, undated=undated: _write(figure, part, form, undated))  # type: ignore[misc]
    return paths


def _write(figure: Figure, path: Path, form: str, metadata: dict[str, Any]) -> None:
    figure.savefig(path, format=form, dpi=DPI, metadata=metadata)


def short(name: str, most: int = 28) -> str:
    """Shorten a name for a figure: one line of at most `most` characters, cut in the middle."""
    text = printable(name)
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
