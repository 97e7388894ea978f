"""Ctrl-C: what a verb says when it is stopped."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from sptnet.cli.flags import flags_of, with_flags
from sptnet.errors import SptnetError


class Stopped(SptnetError):
    """By the user."""

    exit_code = 130

    def __init__(self, more: str = ""):
        super().__init__(f"stopped; {more}" if more else "stopped")


class Verbs(TyperGroup):
    """The commands. Ctrl-C ends one with a message, and library errors name its flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Stopped(*interrupt.args) from None
        except SptnetError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            error.shown = with_flags(str(error), flags_of(command)) if command is not None else str(error)
            raise


@contextmanager
def can_go_on(verb: str, out: Path) -> Iterator[None]:
    """Whoever stops what is done here is told how to go on with the run."""
    try:
        yield
    except KeyboardInterrupt:
        go_on = shlex.join(["sptnet", verb, "--resume", "--out", str(out)])
        raise KeyboardInterrupt(f"the last whole epoch is kept. Go on with: {go_on}") from None
