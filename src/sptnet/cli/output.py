"""Everything that commands print on stdout, and errors on stderr.

File names and categories may contain control characters, which would reach the terminal, or bytes that are no text.
Every line is therefore printed by a function of this module, of `tables` or of `runtime.progress`, which make such
characters visible. A test holds that nothing else prints.
"""

import csv
import io
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sptnet.errors import NEXT_REASON
from sptnet.runtime.progress import Say, say
from sptnet.runtime.text import visible


def prepare_streams() -> None:
    """Let stdout and stderr escape the characters that their encoding does not have, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show_line(line: str, flush: bool = False) -> None:
    """Print one line on stdout; control characters, also line breaks, are escaped."""
    print(visible(line), flush=flush)


def show_text(text: str) -> None:
    """Print several lines on stdout; tabs and line breaks stay."""
    for line in text.removesuffix("\n").split("\n"):
        print("\t".join(map(visible, line.split("\t"))))


def show_csv(text: str) -> None:
    """Print a CSV table on stdout; control characters in its cells are escaped."""
    rows = csv.reader(io.StringIO(text, newline=""))
    csv.writer(sys.stdout).writerows(map(visible, row) for row in rows)


def show_json(value: Mapping[str, Any]) -> None:
    r"""Print one JSON object on a line of ASCII on stdout; paths become strings, nan and infinity become null.

    Control characters are escaped. So are bytes of names that are not valid UTF-8: `\udcff` stands for the byte ff, as
    in file names that Python reads.
    """
    from sptnet.results.run_folder import finite

    text = json.dumps(finite(dict(value)), allow_nan=False, default=_path)
    print(text.replace("\x7f", "\\u007f"))  # the only control character that JSON allows in a string


def _path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def note_printer(as_json: bool) -> Say:
    """Return the function that prints lines before the result: on stdout, on stderr if the result is JSON."""
    return say if as_json else partial(show_line, flush=True)


def show_error(text: str) -> None:
    """Print one line on stderr, and one more for each of several reasons."""
    print(NEXT_REASON.join(map(visible, text.split(NEXT_REASON))), file=sys.stderr)
