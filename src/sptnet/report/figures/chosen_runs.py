"""The runs that figures are made of, each with a short label."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.readers import FileShape, read_json, reading
from sptnet.runtime.text import printable


class KnownClassesShape(FileShape):
    """The known classes in split.json."""

    known_classes: list[str]


@dataclass(frozen=True, eq=False)
class ChosenRun:
    """A run with its settings, and the label that figures show."""

    label: str
    folder: RunFolder
    config: Config

    @property
    def path(self) -> Path:
        """Path of the run folder."""
        return self.folder.path

    def known_classes(self) -> tuple[str, ...]:
        """Read the known classes from the split file."""
        file: Path = self.folder.split_file
        way_out = f"Write it again with: `train(resume=True, out={str(self.path)!r})`"
        says, errors = "is missing or damaged", "surrogatepass"
        with reading(file, way_out, says=says):
            if not file.is_file():
                raise ValueError("there is no such file")
            content = read_json(file, way_out, KnownClassesShape, says=says, limit=None, errors=errors)
        return tuple(content["known_classes"])


def choose_runs(paths: Sequence[Path]) -> list[ChosenRun]:
    """Read the settings of each run. Folders that are no run, or are given twice, are refused."""
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
    """Return the part in which each path differs from the others: seed-0/a, seed-0/b give a, b."""
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
