"""Seeds by name: every random draw has its own seed, so that results do not depend on the order of the draws."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager


def seed_of(*parts: int | str) -> int:
    """Return a seed that depends on these names and numbers only, equal in all processes."""
    digest = hashlib.blake2b("/".join(str(part) for part in parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator inside the context and restore its state on exit.

    `torch.manual_seed` is avoided because it also queues a call with a stack trace for every CUDA device, which takes
    longer than cutting a view.
    """
    import torch  # here, so that `seed_of` is quick to import

    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
