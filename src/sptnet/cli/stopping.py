"""Run commands: library messages with flags, and a clear end after Ctrl-C, SIGTERM and SIGHUP."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from sptnet.cli.flags import flags_of, with_flags
from sptnet.errors import SptnetError
from sptnet.runtime.interrupt import Interrupted, noted_interrupts, signal_of
from sptnet.runtime.text import shell_line, visible

# Base class of all errors in arguments, which typer does not export.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Stopped(SptnetError):
    """Error for a command that was stopped: with Ctrl-C, by a batch system, or by closing its terminal."""

    def __init__(self, interrupt: KeyboardInterrupt):
        number = signal_of(interrupt)
        by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
        kept = str(interrupt)
        super().__init__(f"stopped{by}; {kept}" if kept else f"stopped{by}")
        self.exit_code = 128 + number


class Verbs(TyperGroup):
    """Group of all commands. Messages and errors of the library name the flags of the command that runs."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the arguments before the command."""
        with _visible_arguments():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        from sptnet.runtime import progress

        def spell(message: str) -> str:
            command = self.commands.get(ctx.invoked_subcommand or "")
            return message if command is None else with_flags(message, flags_of(command))

        before, progress.spell = progress.spell, spell
        try:
            with noted_interrupts(), _visible_arguments():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Stopped(interrupt) from None
        except SptnetError as error:
            error.shown = spell(str(error))
            raise
        finally:
            progress.spell = before


@contextmanager
def _visible_arguments() -> Iterator[None]:
    """Escape control characters in errors that quote an argument, such as a file name that the shell has expanded."""
    try:
        yield
    except _UsageError as error:
        vars(error)["message"] = visible(str(vars(error)["message"]))
        raise


@contextmanager
def keeping(what: str) -> Iterator[None]:
    """Add a sentence about what is kept to a KeyboardInterrupt, and to an error that a signal has caused."""
    try:
        with noted_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        raise Interrupted(what, signal_of(interrupt)) from None


@contextmanager
def resumable(verb: str, out: Path) -> Iterator[None]:
    """Add the command that resumes the run in `out` to a KeyboardInterrupt."""
    with keeping(f"whole epochs are kept. Resume with: {resuming(verb, out)}"):
        yield


def resuming(verb: str, out: Path) -> str:
    """Return the command that resumes the run in `out`."""
    return shell_line(["sptnet", verb, "--resume", "--out", str(out)])
