"""Writing files whole or not at all."""

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a neighbour, forces it to the disk, then renames: readers see the old file or the new one."""
    part = path.with_name(path.name + ".part")
    part.touch()
    mode = part.stat().st_mode
    write(part)
    part.chmod(mode)  # safetensors makes its files private; a model is as readable as any other file
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(part, path)


def write_text_atomically(path: Path, text: str) -> None:
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8", errors="surrogatepass"))


def write_csv_atomically(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], errors: str = "surrogatepass"
) -> None:
    """Write a CSV file in UTF-8; `errors` says how names that are not UTF-8 are encoded."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", errors=errors, newline="") as stream:
            table = csv.writer(stream)
            table.writerow(columns)
            table.writerows(rows)

    write_atomically(path, write)
