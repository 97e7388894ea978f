"""Whether torch.compile works on this machine, asked before a run relies on it."""

import torch

from sptnet.errors import Misuse


def check_compiler(device: torch.device) -> None:
    """Compiles next to nothing; that needs the same tools as a backbone."""
    one = torch.ones(1, device=device)
    try:
        two = float(torch.compile(lambda x: x + x)(one))
    except (RuntimeError, OSError, ImportError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise Misuse(
            f"torch.compile does not work here ({reason.strip()}). Install what it names, such as a C++ compiler, or "
            "leave it out with --set training.compile=false."
        ) from error
    assert two == 2.0
