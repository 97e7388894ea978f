"""Everything that commands print on stdout, and errors on stderr.

File names and categories may contain control characters, which would reach the terminal, or bytes that are no text.
Every line is therefore printed by a function of this module, of `tables` or of `runtime.progress`, which make such
characters visible. A test holds that nothing else prints.
"""

import csv
import io
import sys

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


def show_error(line: str) -> None:
    """Print one line on stderr."""
    print(visible(line), file=sys.stderr)
