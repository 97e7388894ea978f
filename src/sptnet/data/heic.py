"""HEIC files: read if pillow-heif is installed, otherwise skipped with a message."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

HEIC_SUFFIXES = frozenset({".heic", ".heif"})

_BRANDS = frozenset(b"heic heix heim heis hevc hevx hevm hevs mif1 msf1".split())


def can_read_heic() -> bool:
    """Return whether pillow-heif is installed."""
    return find_spec("pillow_heif") is not None


def looks_like_heic(path: Path) -> bool:
    """Return whether the content is HEIC; phones and mail programs also name such files .jpg."""
    with path.open("rb") as stream:
        head = stream.read(12)
    return head[4:8] == b"ftyp" and head[8:] in _BRANDS


@cache
def heic_formats() -> tuple[str, ...]:
    """Register pillow-heif with Pillow and return Pillow's names of the format."""
    from pillow_heif import register_heif_opener

    register_heif_opener()
    return ("HEIF",)


def skipped_message(files: Sequence[Path]) -> str:
    """Return the message about HEIC files that were skipped."""
    one = len(files) == 1
    return (
        f"{len(files)} HEIC {'file was' if one else 'files were'} left out: "
        f"install sptnet[heic] to read {'it' if one else 'them'}"
    )
