"""What several processes, started by torchrun, do with a verb: they share its work, or the first does it alone."""

import os
import sys
from collections.abc import Sequence

from sptnet.errors import Misuse, SptnetError
from sptnet.runtime.torchrun import is_first

SHARED = frozenset({"discover", "estimate", "predict", "train"})


def take_place(words: Sequence[str]) -> None:
    """Of a shared verb all but the first are silent. Of any other they end, and the first knows of no others."""
    if words and words[0] in SHARED:
        if not is_first():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return
    if not is_first():
        sys.exit()
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


def tells(error: SptnetError) -> bool:
    """Whether this process says what went wrong. All of them see a misuse, and one of each machine tells of it."""
    first_here = is_first() or os.environ.get("LOCAL_RANK", "0") == "0"
    return not error.reported_elsewhere and (first_here or not isinstance(error, Misuse))
