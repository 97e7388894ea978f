"""Age of the page of a run: the number of edits it was written with, and the number there are now.

Both are in the head of the page. A page opened from disk cannot read other files, so whoever adds edits writes their
number into it.
"""

import re
from pathlib import Path

from sptnet.results.run_folder import EDITS
from sptnet.runtime.files import write_atomically

PAGE = "report.html"
_HEAD = 4_000
_MARK = re.compile(rb'<meta name="sptnet-edits" content="(\d+) of (\d+); model pictures (yes|no)">')


def page_mark(known: int, model_pictures: bool) -> str:
    """Return the content of the mark of a page that knows `known` edits, which are all there are."""
    return f"{known} of {known}; model pictures {'yes' if model_pictures else 'no'}"


def count_edits(run: str | Path) -> int:
    """Count the lines of the log of edits."""
    file = Path(run) / EDITS
    return sum(bool(line.strip()) for line in file.read_bytes().split(b"\n")) if file.is_file() else 0


def has_model_pictures(run: str | Path) -> bool:
    """Return False if the page of the run was written without pictures of the model, True without such a page."""
    page = Path(run) / PAGE
    found = _MARK.search(_head(page)) if page.is_file() else None
    return found is None or found[3] == b"yes"


def tell_page(run: str | Path) -> Path | None:
    """Write the number of edits into the page of a run; return the page if it was written with another number.

    A page without a mark, of an earlier version, counts as older if there are edits.
    """
    page = (Path(run) / PAGE).resolve()
    if not page.is_file():
        return None
    now, head = count_edits(run), _head(page)
    found = _MARK.search(head)
    if found is None:
        return Path(run) / PAGE if now else None
    if int(found[2]) != now:
        content = page.read_bytes()
        start, end = found.span(2)
        write_atomically(page, lambda part: part.write_bytes(content[:start] + str(now).encode() + content[end:]))
    return Path(run) / PAGE if int(found[1]) != now else None


def _head(page: Path) -> bytes:
    with page.open("rb") as stream:
        return stream.read(_HEAD)
