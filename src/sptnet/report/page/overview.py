"""The first sentences of the page, the least sure images, and the order of categories and images."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sptnet.results.categories import Category
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.results.run_result import RunResult

MOST_LEAST_SURE = 40


def expectation(result: RunResult, expected: ExpectedAccuracy | None, reason: str) -> str:
    """Return how many unsorted images should be right, or `reason`: a sentence without its end; "" without images."""
    n = int(unsorted(result).sum())
    if n == 0:
        return ""
    images = f"{n:,} unsorted {'image' if n == 1 else 'images'}"
    if expected is None:
        return f"How many of the {images} are right is not known: {reason.rstrip('.')}"
    value, low, high = (f"{100 * share:.0f}" for share in (expected.value, expected.low, expected.high))
    return f"About {value} % ({low} to {high}) of the {images} should be right"


def unsorted(result: RunResult) -> npt.NDArray[np.bool_]:
    """Return True per image that the run was to sort: neither labelled nor kept aside."""
    return np.array([part == "unlabelled" for part in result.part], dtype=np.bool_)


def least_sure(result: RunResult) -> list[int]:
    """Return the positions of up to 40 unsorted images, least certain first.

    Dropped images, and images that are certain or confirmed by a person, are left out.
    """
    candidates = np.flatnonzero(unsorted(result) & (result.category >= 0) & (result.certainty < 1))
    ordered = candidates[np.argsort(result.certainty[candidates], kind="stable")].tolist()
    return [i for i in ordered if result.ids[i] not in result.confirmed][:MOST_LEAST_SURE]


def expected_shares(result: RunResult, before: RunResult, expected: ExpectedAccuracy | None) -> list[float | None]:
    """Return the expected share of right images among the unsorted images of each category, None if unknown.

    `before` is the result without edits. Every image keeps the expected share of its category before the edits; images
    that a person confirmed or moved count as right.
    """
    if expected is None:
        return [None] * len(result.names)
    of_category = np.array([expected.categories.get(name, np.nan) for name in before.names])
    share = np.append(of_category, np.nan)[before.category]
    share[[id_ in result.confirmed for id_ in result.ids]] = 1.0
    counts = unsorted(result) & np.isfinite(share)
    inside = [share[counts & (result.category == index)] for index in range(len(result.names))]
    return [float(values.mean()) if len(values) else None for values in inside]


def summary(result: RunResult, categories: Sequence[Category]) -> str:
    """Return a summary such as "8,214 images, 12 known categories, 9 new, 341 doubtful", without empty categories."""
    filled = [category for category in categories if category.size]
    n_images = sum(category.size for category in filled)
    n_known = sum(not category.is_new for category in filled)
    parts = [
        f"{n_images:,} {'image' if n_images == 1 else 'images'}",
        f"{n_known:,} known {'category' if n_known == 1 else 'categories'}",
        f"{len(filled) - n_known:,} new",
        f"{sum(len(category.doubtful) for category in filled):,} doubtful",
    ]
    n_dropped = len(result) - n_images
    return ", ".join([*parts, *([f"{n_dropped:,} dropped"] if n_dropped else [])])


def in_words(result: RunResult, categories: Sequence[Category], plausible: tuple[float, float] | None) -> str:
    """Return the sentence of the page: images, categories with the plausible range of their number, doubtful images.

    The script of the page writes the same sentence after edits (`drawSentence`).
    """
    filled = [category for category in categories if category.size]
    n_images, n_known = sum(category.size for category in filled), sum(not category.is_new for category in filled)
    n_doubtful, n_dropped = sum(len(category.doubtful) for category in filled), len(result) - n_images
    between = plausible is not None and plausible[0] < plausible[1]
    kinds = f"{n_known:,} known and {len(filled) - n_known:,} new"
    parts = [
        f"{n_images:,} {'image' if n_images == 1 else 'images'} in {len(filled):,} "
        f"{'category' if len(filled) == 1 else 'categories'}"
        + (f" ({plausible[0]:,.0f} to {plausible[1]:,.0f} are plausible)" if plausible and between else "")
        + f": {kinds}.",
        f"{n_doubtful:,} {'image is' if n_doubtful == 1 else 'images are'} doubtful.",
        f"{n_dropped:,} {'was' if n_dropped == 1 else 'were'} marked as wrong.",
    ]
    return " ".join(parts if n_dropped else parts[:2])


def display_order(categories: Sequence[Category]) -> list[int]:
    """Return the indices of the categories: new ones first, then by size; ties in the given order."""
    return sorted(range(len(categories)), key=lambda i: (not categories[i].is_new, -categories[i].size, i))


def member_order(result: RunResult, categories: Sequence[Category]) -> list[list[int]]:
    """Return the positions of the images per category: the most certain first, doubtful ones last."""
    doubtful = doubtful_ids(categories)
    order: list[list[int]] = [[] for _ in categories]
    for i in sorted(range(len(result)), key=lambda i: (result.ids[i] in doubtful, -float(result.certainty[i]))):
        if result.category[i] >= 0:
            order[result.category[i]].append(i)
    return order


def doubtful_ids(categories: Sequence[Category]) -> frozenset[str]:
    """Return the ids of all doubtful images."""
    return frozenset(id_ for category in categories for id_ in category.doubtful)
