"""Looking without learning: a model in the mode it is used in, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Drops nothing in here, and is as it was afterwards, whatever happens."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
