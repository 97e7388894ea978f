"""Seeds by name: every random draw of a run has its own, so that no draw depends on the order of the work."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(*parts: int | str) -> int:
    """A seed from a list of names and numbers, the same in whatever process it is computed."""
    digest = hashlib.blake2b("/".join(str(part) for part in parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The CPU's global generator starts at `seed` inside and goes on as before outside.

    It is asked directly: `torch.manual_seed` also queues a call with a stack trace for every CUDA device, which costs
    more than making a view.
    """
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
