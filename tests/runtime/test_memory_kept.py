"""Freed memory is kept inside the context and returned to the system afterwards."""

import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from sptnet.runtime import memory as kept_memory
from sptnet.runtime.memory import memory_kept

glibc = pytest.mark.skipif(kept_memory._glibc() is None, reason="needs glibc")


def page_faults_of_reuse(megabytes: int = 64, times: int = 20) -> int:
    """Number of page faults while a large tensor is created and freed repeatedly."""
    for _ in range(3):
        torch.ones(megabytes * 2**18).sum()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(megabytes * 2**18).sum()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@glibc
def test_large_tensors_reuse_memory() -> None:
    """Run in a new process, whose heap has no large free block yet."""
    program = (
        "from test_memory_kept import memory_kept, page_faults_of_reuse\n"
        "print(page_faults_of_reuse())\n"
        "with memory_kept():\n    print(page_faults_of_reuse())"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    usual, kept = map(int, done.stdout.split())
    assert usual > 20 * 64 * 2**20 / resource.getpagesize() / 2
    assert kept < usual / 4, "a few times at the beginning may need more"


@glibc
def test_memory_is_returned_at_the_end() -> None:
    with memory_kept():
        large = torch.ones(256 * 2**18)
        del large
        kept = resident_megabytes()
    assert resident_megabytes() < kept - 200


@glibc
def test_nested_contexts_and_threads_keep_memory_until_the_last_exit() -> None:
    def enter_and_leave() -> None:
        with memory_kept():
            pass

    with memory_kept():
        with memory_kept():
            pass
        thread = threading.Thread(target=enter_and_leave)
        thread.start()
        thread.join()
        assert page_faults_of_reuse() < 20 * 64 * 2**20 / resource.getpagesize() / 4
    assert kept_memory._users == 0


def test_an_exception_leaves_the_context() -> None:
    with pytest.raises(ZeroDivisionError), memory_kept():
        _ = 1 // 0
    assert kept_memory._users == 0


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_glibc", lambda: None)
    with memory_kept():
        assert torch.ones(3).sum() == 3
    assert kept_memory._users == 0
