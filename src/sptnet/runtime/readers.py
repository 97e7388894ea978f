"""Read text files that may be damaged. Every problem becomes one line: the file, the reason and a way out.

Reasons are raised inside `reading` as ValueError; it adds the file and the way out.
"""

import csv
import json
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sptnet.errors import Failure, Misuse, SptnetError
from sptnet.runtime.text import printable

SMALL = 64 * 2**20
"""Largest size in bytes of a file that does not grow with the number of images."""
MOST_LEVELS = 50
"""Deepest nesting of lists and tables; no file of sptnet has more than ten levels."""
_LONG_KEY = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){50}""")
_LARGEST_TOML = 2**63 - 1

Problem = type[Failure] | type[Misuse]
T = TypeVar("T")


class FileShape(BaseModel):
    """Base class of the shapes of JSON files: types are strict, other keys are allowed."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Table(NamedTuple):
    """A CSV file with a header."""

    columns: tuple[str, ...]
    rows: list[dict[str, str]]
    """Rows by column; a short row lacks values, which are None, and a long one has a list under the key None."""
    lines: list[int]
    """Number of the last line of each row."""


def one_line(reason: object, most: int = 300) -> str:
    """Return a reason on one line, cut to `most` characters."""
    text = printable(" ".join(str(reason).replace("`", "'").splitlines()))  # backticks are for parameters
    return text if len(text) <= most else f"{text[:most]}..."


def damaged(path: Path, reason: object, way_out: str, error: Problem = Failure) -> SptnetError:
    """Return the error for a damaged file."""
    return error(f"{printable(str(path))} is damaged ({one_line(reason)}). {way_out}")


@contextmanager
def reading(path: Path, way_out: str, error: Problem = Failure, says: str = "is damaged") -> Iterator[None]:
    """Turn the problems of a file into one error: the file, what `says` of it, the reason, and the way out."""
    name = printable(str(path))
    try:
        yield
    except SptnetError:
        raise
    except OSError as problem:
        reason = one_line(problem.strerror or problem)
        raise error(f"{name} cannot be read ({reason}). {way_out}") from problem
    except (ValueError, csv.Error) as problem:
        raise error(f"{name} {says} ({one_line(problem)}). {way_out}") from problem


def file_size(path: Path) -> int:
    """Return the size of a regular file in bytes; raise an OSError for folders, pipes and what does not exist."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise IsADirectoryError(None, "it is not a file")
    return facts.st_size


def decoded(path: Path, limit: int | None = SMALL, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a regular file of at most `limit` bytes; call it inside `reading`."""
    size = file_size(path)
    if limit is not None and size > limit:
        raise ValueError(f"it has {size:,} bytes, and such a file has at most {limit:,}")
    return path.read_bytes().decode(encoding, errors)


def parse_json(text: str) -> Any:
    """Parse JSON as sptnet writes it: no NaN, no endless numbers, no endless nesting. Problems are ValueErrors."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError as problem:
        raise ValueError(_without_hint(problem)) from None
    _check_levels(value)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML with whole numbers of 64 bits and without endless nesting. Problems are ValueErrors."""
    if _LONG_KEY.search(text):  # tomllib takes hours for a key of 100,000 parts
        raise ValueError("a key has more than 50 parts")
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as problem:
        raise ValueError(_without_hint(problem)) from None
    for leaf in _check_levels(values):
        if isinstance(leaf, int) and abs(leaf) > _LARGEST_TOML:
            raise ValueError("a whole number has more than 64 bits")
    return values


def read_text(
    path: Path,
    way_out: str,
    error: Problem = Failure,
    says: str = "is damaged",
    limit: int | None = SMALL,
    encoding: str = "utf-8",
    errors: str = "strict",
) -> str:
    """Read a text file in UTF-8; with `errors="surrogatepass"` names of files that are not valid UTF-8 come back."""
    with reading(path, way_out, error, says):
        return decoded(path, limit, encoding, errors)


def read_json(
    path: Path,
    way_out: str,
    shape: type[BaseModel] | None = None,
    error: Problem = Failure,
    says: str = "is damaged",
    limit: int | None = SMALL,
    errors: str = "strict",
) -> Any:
    """Read a JSON file; with a shape, wrongly typed values are refused and keys of the shape must be there."""
    with reading(path, way_out, error, says):
        value = parse_json(decoded(path, limit, errors=errors))
        if shape is not None:
            check_shape(value, shape)
        return value


def read_json_lines(
    path: Path,
    way_out: str,
    parse: Callable[[Any], T],
    only_whole: bool = False,
    errors: str = "strict",
) -> list[T]:
    """Read a file with a JSON value per line; empty lines are skipped.

    `parse` gets the value of each line and raises a ValueError for a wrong one. With `only_whole` a last line
    without its end is skipped, as a kill may have cut it.
    """
    text = read_text(path, way_out, limit=None, errors=errors)
    values = []
    for number, line in enumerate((text[: text.rfind("\n") + 1] if only_whole else text).split("\n"), start=1):
        if line.strip():
            try:
                values.append(parse(parse_json(line)))
            except ValueError as problem:
                name = f"line {number} of {printable(str(path))}"
                raise Failure(f"{name} is damaged ({one_line(problem)}). {way_out}") from problem
    return values


def read_csv(
    path: Path,
    way_out: str,
    error: Problem = Failure,
    says: str = "is damaged",
    encoding: str = "utf-8",
    errors: str = "surrogatepass",
    strict: bool = True,
) -> Table:
    """Read a CSV file whose first row is a header."""
    with reading(path, way_out, error, says):
        file_size(path)
        with path.open(encoding=encoding, errors=errors, newline="") as stream:
            reader = csv.DictReader(stream, strict=strict)
            columns = tuple(reader.fieldnames or ())
            rows, lines = [], []
            for row in reader:
                rows.append(row)
                lines.append(reader.line_num)
    return Table(columns, rows, lines)


def check_shape(value: Any, shape: type[BaseModel]) -> None:
    """Raise a ValueError that names the first three values which do not fit the shape."""
    try:
        shape.model_validate(value)
    except ValidationError as problem:
        raise ValueError("; ".join(reasons(problem)[:3])) from None


def reasons(problem: ValidationError) -> list[str]:
    """Return one reason per value that does not fit: its place in the file, and what is wrong with it."""
    texts = []
    for entry in problem.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(printable(str(part)) for part in entry["loc"])
        message = entry["msg"].removeprefix("Value error, ")
        texts.append(f"{place or 'content'}: {message[:1].lower()}{message[1:]}")
    return texts


def shown(value: object, most: int = 80) -> str:
    """Return the value as Python writes it, cut to `most` characters; endless numbers and nesting are described."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # whole numbers of more than 4,300 digits have no text
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= most else f"{text[:most]}..."


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _without_hint(problem: ValueError) -> str:
    """Return the reason without Python's advice on longer numbers."""
    return str(problem).partition("; use sys.")[0]


def _check_levels(value: Any) -> list[Any]:
    """Return all values that are neither lists nor tables; raise a ValueError if they are nested too deeply."""
    level, leaves = [value], []
    for _ in range(MOST_LEVELS + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            else:
                leaves.append(item)
        if not below:
            return leaves
        level = below
    raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep")
