"""The runs that figures are made of, each with a short name of its own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sptnet.config import Config
from sptnet.errors import Failure, Misuse
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.text import printable


@dataclass(frozen=True, eq=False)
class ChosenRun:
    label: str
    folder: RunFolder
    config: Config

    @property
    def path(self) -> Path:
        return self.folder.path

    def known_classes(self) -> tuple[str, ...]:
        file: Path = self.folder.split_file
        try:
            return tuple(json.loads(file.read_text(encoding="utf-8", errors="surrogatepass"))["known_classes"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failure(
                f"{file} is missing or damaged ({error}). Write it again with: sptnet train --resume --out {self.path}"
            ) from error


def choose_runs(paths: Sequence[Path]) -> list[ChosenRun]:
    """Reads the settings of every run; a folder that is none, or is given twice, is refused."""
    whole = [path.resolve() for path in paths]
    for path, real in zip(paths, whole, strict=True):
        if whole.count(real) > 1:
            raise Misuse(f"the run {path} is given twice. Give every run once.")
    folders = [RunFolder(path) for path in paths]
    return [
        ChosenRun(printable(label), folder, folder.config())
        for label, folder in zip(labels_of(whole), folders, strict=True)
    ]


def labels_of(paths: Sequence[Path]) -> list[str]:
    """For every path the part in which it differs from the others: seed-0/simgcd and seed-0/sptnet give the last."""
    parts = [path.parts for path in paths]
    shortest = min(len(each) for each in parts)
    if len(paths) == 1:
        return [paths[0].name]
    first, last = 0, 0
    while first < shortest - 1 and len({each[first] for each in parts}) == 1:
        first += 1
    while last < shortest - first - 1 and len({each[-1 - last] for each in parts}) == 1:
        last += 1
    return ["/".join(each[first : len(each) - last]) for each in parts]
