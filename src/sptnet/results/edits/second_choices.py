"""Second choices of the model after edits."""

import numpy as np
import numpy.typing as npt

from sptnet.results.edits.log import EditedRun
from sptnet.results.edits.names import edited_names
from sptnet.results.predictions import read_predictions
from sptnet.results.run_folder import RunFolder


def second_choices(folder: RunFolder, edited: EditedRun) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the second choice of the model per image as an index into the edited names, and its certainty, both (n,).

    -1 where there is none: in runs of version 0.2 and before, if another number of categories was chosen, and where the
    edits put both choices into one category.
    """
    before = edited.before
    rows = read_predictions(folder.predictions_file, folder.path)
    index = {name: i for i, name in enumerate(before.names)}
    second = np.array([index.get(row["second"], -1) for row in rows], dtype=np.int64)
    certainty = np.array([float(row["second_certainty"] or 0) for row in rows], dtype=np.float32)
    if edited.edits:
        names = edited_names(before, edited.edits)
        given = np.flatnonzero(second >= 0)
        if names.clustering is None:
            second[given] = names.translate(second[given], before.features[given])
        else:
            second[:] = -1
    second[second == edited.result.category] = -1
    return second, certainty
