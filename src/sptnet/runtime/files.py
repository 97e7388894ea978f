"""Writing files whole or not at all."""

import os
from collections.abc import Callable
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
