"""Draw docs/rooms.svg: the folders of the package in the order of an image's way, with what lives in each.

    python tools/draw_rooms.py > docs/rooms.svg

The texts are the first sentences of the folders' docstrings, so the picture follows the code.
"""

import ast
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "sptnet"
FORMULAS = ("prompts", "head", "losses", "schedules", "metrics")
ROOMS = (
    *("runtime", "config", "data", "clustering", "model", "methods"),
    *("results", "inference", "training", "report", "discovery", "cli"),
)
WAY = {
    "data": "image files",
    "model": "views",
    "inference": "features",
    "training": "logits, losses",
    "report": "predictions",
    "discovery": "one call",
}
"""What enters a folder on the way of an image."""
WIDTH, LEFT, ROW, GAP = 960, 150, 44, 12


def first_sentence(folder: str) -> str:
    """First line of a folder's docstring, without the full stop."""
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0].rstrip(".")


def n_modules(folder: str) -> int:
    """Number of modules in a folder and its sub-folders."""
    return sum(file.name != "__init__.py" for file in (ROOT / folder).rglob("*.py"))


def box(y: int, title: str, text: str, note: str, colour: str) -> list[str]:
    """SVG elements of one row."""
    middle = y + ROW // 2 + 5
    return [
        f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{ROW}" rx="6" fill="{colour}" stroke="#456"/>',
        f'<text x="{LEFT + 12}" y="{middle}" font-weight="bold">{escape(title)}</text>',
        f'<text x="{LEFT + 130}" y="{middle}" font-size="13">{escape(text)}</text>',
        f'<text x="{LEFT - 14}" y="{middle}" font-size="13" text-anchor="end" fill="#246">{escape(note)}</text>',
    ]


def draw() -> str:
    """The picture as SVG."""
    height = (len(ROOMS) + 1) * (ROW + GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="15">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *box(10, "formulas", f"the paper's formulas: {', '.join(FORMULAS)}", "", "#fdf3d8"),
    ]
    for number, room in enumerate(ROOMS, 1):
        y = 10 + number * (ROW + GAP)
        title, text = f"{number} {room}/", f"{first_sentence(room)} ({n_modules(room)})"
        lines += box(y, title, text, WAY.get(room, ""), "#eaf2fb" if number > 2 else "#f2f2f2")
        if room in WAY:
            lines.append(f'<path d="M{LEFT - 10} {y + ROW // 2} h8 m-4 -4 l4 4 l-4 4" stroke="#246" fill="none"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw())
