"""Behaviour of commands that torchrun starts in several processes."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from sptnet.errors import Misuse, SptnetError
from sptnet.runtime.torchrun import is_first

DISTRIBUTED = frozenset({"discover", "estimate", "predict", "train"})
"""Commands whose work is shared among the ranks."""
SECONDS_TO_PRINT = 10.0
"""Longest wait for the rank that prints an error which all ranks raise; torchrun ends it when that rank has ended."""


def set_up_rank(arguments: Sequence[str]) -> None:
    """Distributed commands: mute stdout on ranks > 0. Others: exit on ranks > 0, and run rank 0 as a single process."""
    if arguments and arguments[0] in DISTRIBUTED:
        if not is_first():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return
    if not is_first():
        sys.exit()
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


def let_first_print(error: SptnetError) -> None:
    """Wait on a rank that prints nothing: torchrun ends all ranks as soon as one has ended, the printing one too."""
    if not error.reported_elsewhere and not prints_error(error):
        with suppress(KeyboardInterrupt):  # torchrun's signal to end, once the other rank has printed
            time.sleep(SECONDS_TO_PRINT)


def prints_error(error: SptnetError) -> bool:
    """Return True if this rank prints the error. Every rank raises a misuse, so only local rank 0 prints it."""
    is_local_first = is_first() or os.environ.get("LOCAL_RANK", "0") == "0"
    return not error.reported_elsewhere and (is_local_first or not isinstance(error, Misuse))
