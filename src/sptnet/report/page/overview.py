"""The summary sentence of the page, and the order of categories and images."""

from collections.abc import Sequence

from sptnet.results.categories import Category
from sptnet.results.run_result import RunResult


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
