"""Image set: ids, sources and labels of all images of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sptnet.errors import Misuse

UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images of a data set, one entry per image in each column."""

    name: str
    ids: tuple[str, ...]
    sources: tuple[Path | npt.NDArray[Any] | Image.Image, ...]
    names: tuple[str, ...]
    """Class names."""
    labels: npt.NDArray[np.int64]
    """Index into `names`; -1 if unknown."""
    given: npt.NDArray[np.bool_] | None
    """True if training may use the label; None if every label is known and the split decides."""
    test: npt.NDArray[np.bool_]
    domains: tuple[str, ...] | None = None
    """Domain per image (photo, sketch, ...), if the data set has domains."""

    def __post_init__(self) -> None:
        columns: dict[str, Any] = {"sources": self.sources, "labels": self.labels, "test": self.test}
        columns |= {"given": self.given, "domains": self.domains}
        for column, values in columns.items():
            if values is not None and len(values) != len(self.ids):
                raise Misuse(
                    f"the image set has {len(self.ids)} ids but {len(values)} {column}. Give one for each image."
                )
        for kind, texts in (("ids", self.ids), ("class names", self.names)):
            if len(set(texts)) != len(texts):
                raise Misuse(f"the {kind} of the image set repeat. Give each its own name.")
        flags = [self.test] if self.given is None else [self.test, self.given]
        if self.labels.dtype != np.int64 or any(flag.dtype != np.bool_ for flag in flags):
            raise Misuse("the image set has columns of the wrong type. Give int64 labels, bool given and bool test.")
        if ((self.labels < UNKNOWN) | (self.labels >= len(self.names))).any():
            raise Misuse(
                f"a label of the image set lies outside -1..{len(self.names) - 1}. "
                "Give an index into the class names, or -1."
            )
        if self.given is not None and (self.labels[self.given] == UNKNOWN).any():
            raise Misuse("a given label of the image set is unknown. Set given only where the label is not -1.")

    def __len__(self) -> int:
        return len(self.ids)

    def subset(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> "ImageSet":
        """Return the images at these positions, in this order; all class names are kept."""
        chosen = np.asarray(indices, dtype=np.int64)
        return ImageSet(
            name=self.name,
            ids=tuple(self.ids[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
            names=self.names,
            labels=self.labels[chosen],
            given=None if self.given is None else self.given[chosen],
            test=self.test[chosen],
            domains=None if self.domains is None else tuple(self.domains[i] for i in chosen),
        )
