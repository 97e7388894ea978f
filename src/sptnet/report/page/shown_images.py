"""Choice of the images that the page shows: all of a small run, representative and doubtful ones of a large run."""

from collections.abc import Iterable, Sequence

from sptnet.results.categories import Category
from sptnet.results.run_result import RunResult

ALL_UP_TO = 5_000
"""Largest number of images that are all shown."""
CHOSEN = 3_000
"""Approximate number of representatives and doubtful images of a larger run, in all categories together."""


def pictured_images(result: RunResult, categories: Sequence[Category], also: Iterable[int] = ()) -> list[int]:
    """Return the positions of the images on the page in ascending order, without dropped images.

    `also` are positions that are shown in any case.
    """
    kept = [i for i in range(len(result)) if result.category[i] >= 0]
    if len(kept) <= ALL_UP_TO:
        return kept
    position = {id_: i for i, id_ in enumerate(result.ids)}
    each = max(2, CHOSEN // max(1, sum(category.size > 0 for category in categories)))
    chosen = set(also)
    for category in categories:
        best = category.representatives[: (each + 1) // 2]
        rest = [id_ for id_ in category.doubtful if id_ not in best]
        chosen.update(position[id_] for id_ in [*best, *rest[: each - len(best)]])
    return sorted(chosen)
