"""Simulated kills at any file operation: one raises, and so does every later one, as if the process were gone.

Operations are those that change the disk: what a process did before stays, and nothing is tidied up afterwards.
"""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHANGES = (
    "replace",
    "rename",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "symlink",
    "chmod",
    "fsync",
    "ftruncate",
    "pwrite",
)


class Killed(BaseException):
    """Raised in place of a file operation."""


@contextmanager
def file_operations(kill_at: int | None = None) -> Iterator[list[str]]:
    """Yield the list of file operations so far; the one of number `kill_at`, from 1, raises `Killed` instead."""
    done: list[str] = []

    def counted(name: str, inner: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def operation(*args: Any, **more: Any) -> Any:
            if counts(*args, **more):
                done.append(name)
                if kill_at is not None and len(done) >= kill_at:
                    raise Killed(f"at operation {kill_at}: {name}")
            return inner(*args, **more)

        return operation

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, counted(name, getattr(os, name), lambda *args, **more: True))
        patch.setattr(os, "write", counted("write", os.write, lambda file, *rest: file > 2))
        patch.setattr(os, "open", counted("create", os.open, _creates))
        opening = counted("open", io.open, _writes)
        patch.setattr(io, "open", opening)
        patch.setattr(builtins, "open", opening)
        yield done


def _creates(path: Any, flags: int, *args: Any, **more: Any) -> bool:
    return bool(flags & os.O_CREAT)


def _writes(file: Any, mode: str = "r", *args: Any, **more: Any) -> bool:
    return any(letter in mode for letter in "wax+") and str(file) != os.devnull


def kill_everywhere(prepare: Callable[[int], Callable[[], object]], first: int = 1, step: int = 1) -> Iterator[int]:
    """Kill a piece of work at its first operation, its second and so on; yields after each kill.

    `prepare` takes a number, makes a fresh state for it and returns the work. The last number is yielded after the
    work was done without a kill.
    """
    number = first
    while True:
        work = prepare(number)
        with file_operations(number) as done:
            try:
                work()
            except Killed:
                pass
            else:
                assert len(done) < number
                break
        yield number
        number += step
    yield number
