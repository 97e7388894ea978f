"""Start a job of several processes."""

import os
import subprocess
import sys


def torchrun(*words: object, n: int = 2, **changes: object) -> subprocess.CompletedProcess[str]:
    """Run a script in `n` processes; `changes` are environment variables."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.update({name: str(value) for name, value in changes.items()})
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
