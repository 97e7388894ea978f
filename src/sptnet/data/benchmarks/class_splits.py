"""Which classes are known: the published lists of the Semantic Shift Benchmark and of Herbarium 19."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class ClassSplit:
    """Class numbers counted from 0; new classes run from hard over medium to easy, where that is known."""

    known: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return self.known + self.new


def class_split(name: str) -> ClassSplit:
    lists = json.loads(files("sptnet.data.benchmarks").joinpath("class_splits.json").read_text(encoding="utf-8"))[name]
    new = lists["new"]
    if isinstance(new, dict):
        new = new["hard"] + new["medium"] + new["easy"]
    return ClassSplit(tuple(lists["old"]), tuple(new))
