"""Names of new categories that carry over when the same images are grouped anew."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sptnet.metrics import best_matching

Ids = npt.NDArray[np.int64]

LEAST_SHARE = 0.5  # of the images of either category that both hold


def carried_names(
    before: Sequence[str], before_category: Ids, after: Sequence[str], after_category: Ids, n_fixed: int
) -> tuple[str, ...]:
    """Return names for the categories `after`: matched ones take the name of the category `before` that they continue.

    Both category columns have one index per image, -1 for none. The first `n_fixed` names of `after` stay, and are
    given to no other category. One matching between the others maximises the shared images; a name carries over if the
    two share at least half of the images of either. The rest are called new-1 and so on, without the names `before`.
    """
    fixed = tuple(after[:n_fixed])
    old = [i for i, name in enumerate(before) if name not in fixed]
    table = np.zeros((len(old), len(after) - n_fixed), dtype=np.int64)
    row = {category: i for i, category in enumerate(old)}
    for was, now in zip(before_category.tolist(), after_category.tolist(), strict=True):
        if was in row and now >= n_fixed:
            table[row[was], now - n_fixed] += 1
    carried: dict[int, str] = {}
    if table.size:
        sizes_before = np.bincount(before_category[before_category >= 0], minlength=len(before))
        sizes_after = np.bincount(after_category[after_category >= 0], minlength=len(after))
        for i, j in zip(*best_matching(table), strict=True):
            smaller = min(sizes_before[old[i]], sizes_after[n_fixed + j])
            if table[i, j] and table[i, j] >= LEAST_SHARE * smaller:
                carried[n_fixed + int(j)] = before[old[i]]
    taken = {*fixed, *before}
    fresh = (name for i in range(1, len(after) + len(taken) + 1) if (name := f"new-{i}") not in taken)
    return (*fixed, *(carried.get(j) or next(fresh) for j in range(n_fixed, len(after))))
