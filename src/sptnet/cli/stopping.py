"""Ctrl-C: what a verb says when it is stopped."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from sptnet.errors import SptnetError


class Stopped(SptnetError):
    """By the user."""

    exit_code = 130

    def __init__(self, more: str = ""):
        super().__init__(f"stopped; {more}" if more else "stopped")


class Verbs(TyperGroup):
    """The verbs; typer itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Stopped(*interrupt.args) from None


@contextmanager
def can_go_on(verb: str, out: Path) -> Iterator[None]:
    """Whoever stops what is done here is told how to go on with the run."""
    try:
        yield
    except KeyboardInterrupt:
        go_on = shlex.join(["sptnet", verb, "--resume", "--out", str(out)])
        raise KeyboardInterrupt(f"the last whole epoch is kept. Go on with: {go_on}") from None
