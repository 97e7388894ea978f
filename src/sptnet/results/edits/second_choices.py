"""Second choices of the model after edits."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sptnet.results.edits.names import edited_names
from sptnet.results.edits.types import Edit
from sptnet.results.predictions import read_predictions
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult


def second_choices(
    folder: RunFolder, before: RunResult, result: RunResult, edits: Sequence[Edit]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the second choice of the model per image as an index into the edited names, and its certainty, both (n,).

    -1 where there is none: in runs of version 0.2 and before, if another number of categories was chosen, and where the
    edits put both choices into one category. `before` is the result without `edits`, `result` the one with them.
    """
    rows = read_predictions(folder.predictions_file, folder.path)
    index = {name: i for i, name in enumerate(before.names)}
    second = np.array([index.get(row["second"], -1) for row in rows], dtype=np.int64)
    certainty = np.array([float(row["second_certainty"] or 0) for row in rows], dtype=np.float32)
    if edits:
        names = edited_names(before, edits)
        given = np.flatnonzero(second >= 0)
        if names.clustering is None:
            second[given] = names.translate(second[given], before.features[given])
        else:
            second[:] = -1
    second[second == result.category] = -1
    return second, certainty
