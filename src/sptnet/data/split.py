"""Split an image set into labelled, unlabelled, held-out and test images."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.errors import Misuse
from sptnet.runtime.text import listed, printable

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Parts of an image set as positions of images, and the target per image."""

    classes: tuple[str, ...]
    """Known classes first, then the new classes with known labels."""
    n_known: int
    target: npt.NDArray[np.int64]
    """Index into `classes` per image; -1 if the true class is unknown."""
    labelled: Indices
    unlabelled: Indices
    holdout: Indices
    """Labelled images kept out of training for model selection."""
    test: Indices

    def __post_init__(self) -> None:
        parts = np.concatenate([self.labelled, self.unlabelled, self.holdout, self.test])
        if not np.array_equal(np.sort(parts), np.arange(len(self.target))):
            raise Misuse("the parts of the split overlap or leave images out. Put each image in one part.")

    @property
    def known_classes(self) -> tuple[str, ...]:
        """Names of the known classes."""
        return self.classes[: self.n_known]

    @property
    def new_classes(self) -> tuple[str, ...]:
        """Names of the new classes."""
        return self.classes[self.n_known :]

    @property
    def old_ids(self) -> range:
        """Targets of the known classes."""
        return range(self.n_known)

    @property
    def training(self) -> Indices:
        """Positions of all training images: the labelled ones, then the unlabelled ones."""
        return np.concatenate([self.labelled, self.unlabelled])

    @property
    def training_labels(self) -> npt.NDArray[np.int64]:
        """Label per training image, in the order of `training`; -1 for unlabelled ones."""
        return np.concatenate([self.target[self.labelled], np.full(len(self.unlabelled), UNKNOWN)])

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Labels that training may use: the target of labelled and held-out images, -1 for all others."""
        visible = np.full_like(self.target, UNKNOWN)
        for part in (self.labelled, self.holdout):
            visible[part] = self.target[part]
        return visible


def make_split(
    image_set: ImageSet,
    known_classes: Sequence[str] | int | None = None,
    labelled_share: float = 0.5,
    seed: int = 0,
    holdout_share: float = 0.0,
    labelled_domain: str | None = None,
) -> Split:
    """Split by the given labels or, if all labels are known, draw `labelled_share` of the known classes' images.

    In a data set with domains, only images of `labelled_domain` are labelled.
    """
    if not 0 <= seed < 2**32 - 1:
        raise Misuse(f"the seed {seed} cannot be used. Give a whole number from 0 to {2**32 - 2}.")
    if not 0 <= holdout_share < 1:
        raise Misuse(f"the holdout share {holdout_share} lies outside [0, 1). Give a share such as 0.1.")
    if image_set.given is None:
        known = _known_of_benchmark(image_set, known_classes)
        classes, target = _order_classes(image_set, known)
        may_be_labelled = ~image_set.test & _in_domain(image_set, labelled_domain)
        labelled = _draw_labelled(target, may_be_labelled, len(known), labelled_share, seed)
    else:
        known = _known_of_given(image_set, image_set.given, known_classes)
        classes, target = _order_classes(image_set, known)
        labelled = np.flatnonzero(image_set.given & ~image_set.test)
    _refuse_unlabelled_classes(known, target[labelled])
    unlabelled = np.setdiff1d(np.flatnonzero(~image_set.test), labelled)
    if len(unlabelled) == 0:
        raise Misuse(
            "no unlabelled image is left, so there is nothing to discover. "
            "Lower data.labelled_share or add images without a label."
        )
    holdout = _draw_holdout(target, labelled, len(known), holdout_share, seed + 1)
    return Split(
        classes=classes,
        n_known=len(known),
        target=target,
        labelled=np.setdiff1d(labelled, holdout),
        unlabelled=unlabelled,
        holdout=holdout,
        test=np.flatnonzero(image_set.test),
    )


def _in_domain(image_set: ImageSet, domain: str | None) -> npt.NDArray[np.bool_]:
    if domain is None:
        return np.ones(len(image_set), dtype=np.bool_)
    inside = np.array([other == domain for other in image_set.domains or ()], dtype=np.bool_)
    if not inside.any():
        existing = listed(sorted(set(image_set.domains or ()))) or "none"
        raise Misuse(f"{image_set.name} has no images of a domain {printable(domain)}. Its domains: {existing}.")
    return inside


def _known_of_benchmark(image_set: ImageSet, known_classes: Sequence[str] | int | None) -> tuple[str, ...]:
    if known_classes is None:
        raise Misuse(
            "every image is labelled, so there is nothing to discover. Name the known classes with "
            "`data.known_classes=5`, or put unsorted images in the folder called unlabelled."
        )
    return _named(image_set, known_classes)


def _known_of_given(
    image_set: ImageSet, given: npt.NDArray[np.bool_], known_classes: Sequence[str] | int | None
) -> tuple[str, ...]:
    labelled = set(image_set.labels[given & ~image_set.test].tolist())
    labelled_names = tuple(name for i, name in enumerate(image_set.names) if i in labelled)
    if not labelled_names:
        if known_classes == 0 and not isinstance(known_classes, bool):
            return ()
        raise Misuse(
            "no training image has a label. Sort some into one sub-folder per class, or give a labels file. "
            "To cluster them without labels: sptnet discover, or method kmeans with `data.known_classes=0`."
        )
    if known_classes is None:
        return labelled_names
    known = _named(image_set, known_classes)
    left_out = [name for name in labelled_names if name not in known]
    if left_out:
        raise Misuse(
            f"the labels name {len(labelled_names)} classes but data.known_classes leaves out "
            f"{listed(left_out)}. Add the missing ones, or drop the setting."
        )
    return known


def _named(image_set: ImageSet, known_classes: Sequence[str] | int) -> tuple[str, ...]:
    if isinstance(known_classes, int):
        if isinstance(known_classes, bool) or not 1 <= known_classes <= len(image_set.names):
            raise Misuse(
                f"data.known_classes is {known_classes}, but the data set has {len(image_set.names)} classes. "
                f"Give a number from 1 to {len(image_set.names)}, or a list of names."
            )
        return image_set.names[:known_classes]
    # Class names such as 0 and 1 are numbers if they come from the command line.
    chosen = (known_classes,) if isinstance(known_classes, str) else known_classes
    known = tuple(str(name) for name in chosen)
    if not known:
        raise Misuse(f"data.known_classes is empty. Choose from: {listed(image_set.names)}.")
    strangers = [name for name in known if name not in image_set.names]
    if strangers:
        close = difflib.get_close_matches(strangers[0], image_set.names, n=1)
        hint = f" (did you mean {printable(close[0])}?)" if close else ""
        raise Misuse(
            f"data.known_classes names {listed(strangers)}, which the data set does not have{hint}. "
            f"Choose from: {listed(image_set.names)}."
        )
    repeats = sorted({name for name in known if known.count(name) > 1})
    if repeats:
        raise Misuse(f"data.known_classes names {listed(repeats)} more than once. Name each class once.")
    return known


def _order_classes(image_set: ImageSet, known: tuple[str, ...]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    present = set(image_set.labels.tolist())
    new = tuple(name for i, name in enumerate(image_set.names) if i in present and name not in known)
    classes = known + new
    return classes, targets_of(image_set, classes)


def targets_of(image_set: ImageSet, classes: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the index into `classes` per image; -1 for unknown labels and other classes."""
    position = {name: i for i, name in enumerate(classes)}
    # The label -1 selects the last entry.
    target_of_label = [position.get(name, UNKNOWN) for name in image_set.names] + [UNKNOWN]
    return np.array(target_of_label, dtype=np.int64)[image_set.labels]


def _draw_labelled(
    target: npt.NDArray[np.int64], allowed: npt.NDArray[np.bool_], n_known: int, share: float, seed: int
) -> Indices:
    if not 0 < share <= 1:
        raise Misuse(f"the labelled share {share} lies outside (0, 1]. Give a share such as 0.5.")
    candidates = np.flatnonzero((target >= 0) & (target < n_known) & allowed)
    if len(candidates) == 0:
        return candidates
    # Do not change this call: it makes the draw behind the published results.
    drawn = np.random.RandomState(seed).choice(len(candidates), size=int(share * len(candidates)), replace=False)
    return np.sort(candidates[drawn])


def _refuse_unlabelled_classes(known: tuple[str, ...], labelled_target: npt.NDArray[np.int64]) -> None:
    counts = np.bincount(labelled_target, minlength=len(known))
    empty = [name for name, count in zip(known, counts, strict=True) if count == 0]
    if empty:
        raise Misuse(
            f"the labels name {len(known) - len(empty)} classes but {len(known)} are to be known: "
            f"{listed(empty)} has no labelled training image. "
            "Label some, raise data.labelled_share, or leave the class out of data.known_classes."
        )


def _draw_holdout(target: npt.NDArray[np.int64], labelled: Indices, n_known: int, share: float, seed: int) -> Indices:
    random = np.random.RandomState(seed)
    chosen = [np.empty(0, dtype=np.int64)]
    for known in range(n_known if share > 0 else 0):
        members = labelled[target[labelled] == known]
        size = min(max(1, round(share * len(members))), len(members) - 1)
        chosen.append(random.choice(members, size=size, replace=False))
    return np.sort(np.concatenate(chosen))
