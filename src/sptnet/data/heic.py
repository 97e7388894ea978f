"""HEIC, the format of many phones: read where pillow-heif is installed, and never left out in silence."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

HEIC_SUFFIXES = frozenset({".heic", ".heif"})

_BRANDS = frozenset(b"heic heix heim heis hevc hevx hevm hevs mif1 msf1".split())


def can_read_heic() -> bool:
    return find_spec("pillow_heif") is not None


def looks_like_heic(path: Path) -> bool:
    """By content: telephones and mail programs also call such files .jpg."""
    with path.open("rb") as stream:
        head = stream.read(12)
    return head[4:8] == b"ftyp" and head[8:] in _BRANDS


@cache
def heic_formats() -> tuple[str, ...]:
    """What Pillow calls the format, once it has been taught to read it."""
    from pillow_heif import register_heif_opener

    register_heif_opener()
    return ("HEIF",)


def left_out(files: Sequence[Path]) -> str:
    one = len(files) == 1
    return (
        f"{len(files)} HEIC {'file was' if one else 'files were'} left out: "
        f"install sptnet[heic] to read {'it' if one else 'them'}"
    )
