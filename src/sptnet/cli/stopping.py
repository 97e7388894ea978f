"""Run commands: library messages with flags, and a clear end after Ctrl-C."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from sptnet.cli.flags import flags_of, with_flags
from sptnet.errors import SptnetError


class Stopped(SptnetError):
    """Error for a command that the user stopped with Ctrl-C."""

    exit_code = 130

    def __init__(self, more: str = ""):
        super().__init__(f"stopped; {more}" if more else "stopped")


class Verbs(TyperGroup):
    """Group of all commands. Messages and errors of the library name the flags of the command that runs."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        from sptnet.runtime import progress

        def spell(message: str) -> str:
            command = self.commands.get(ctx.invoked_subcommand or "")
            return message if command is None else with_flags(message, flags_of(command))

        before, progress.spell = progress.spell, spell
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Stopped(*interrupt.args) from None
        except SptnetError as error:
            error.shown = spell(str(error))
            raise
        finally:
            progress.spell = before


@contextmanager
def resumable(verb: str, out: Path) -> Iterator[None]:
    """Add the command that resumes the run in `out` to a KeyboardInterrupt."""
    try:
        yield
    except KeyboardInterrupt:
        resume = shlex.join(["sptnet", verb, "--resume", "--out", str(out)])
        raise KeyboardInterrupt(f"the last whole epoch is kept. Resume with: {resume}") from None
