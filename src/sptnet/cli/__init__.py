"""Command line: parse arguments, call the library, print. Holds no logic of its own.

Heavy imports are inside the commands, so that help is fast.
"""

import sys
from contextlib import suppress
from typing import NoReturn

import typer

from sptnet.cli.output import prepare_streams, show_error, show_line
from sptnet.cli.processes import let_first_print, prints_error, set_up_rank
from sptnet.cli.stopping import Stopped, Verbs
from sptnet.cli.verbs import (
    check,
    data,
    demo,
    discover,
    edit,
    estimate,
    evaluate,
    export,
    figures,
    import_,
    predict,
    recipes,
    report,
    train,
)
from sptnet.errors import SptnetError
from sptnet.runtime.interrupt import STOP_SIGNALS, noted_interrupts
from sptnet.runtime.torchrun import is_first

app = typer.Typer(
    name="sptnet",
    cls=Verbs,
    help="Generalized category discovery in images: recognise the categories you know, find the new ones.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("discover")(discover.discover)
app.command("check")(check.check)
app.command("train")(train.train)
app.command("estimate")(estimate.estimate)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.add_typer(edit.app, name="edit")
app.command("export")(export.export)
app.command("report")(report.report)
app.command("figures")(figures.figures)
app.command("import")(import_.import_)
app.command("data")(data.data)
app.add_typer(recipes.app, name="recipes")


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    """Handle options that come without a command."""
    if version:
        from sptnet import __version__

        show_line(__version__)
        raise typer.Exit


def main() -> None:
    """Run a command.

    Exit codes: 0 for success, 1 for a failure, 2 for misuse, 128 + n after signal n: 130 after Ctrl-C, 143 after
    SIGTERM, 129 after SIGHUP.
    """
    prepare_streams()
    set_up_rank(sys.argv[1:])
    with noted_interrupts(STOP_SIGNALS, second_ends=True):
        try:
            app(prog_name="sptnet")
        except Stopped as stop:
            _end(stop)
        except KeyboardInterrupt as interrupt:  # before the command began
            _end(Stopped(interrupt))
        except SptnetError as error:
            if prints_error(error):
                show_error(f"error: {error.shown or error}")
            let_first_print(error)
            sys.exit(error.exit_code)
        except OSError as error:
            show_error(f"error: {error}")
            sys.exit(1)
        except MemoryError:
            show_error(
                "error: not enough memory. Close other programs, or ask for less: --set training.batch_size=N, "
                "--set views.workers=0."
            )
            sys.exit(1)


def _end(stop: Stopped) -> NoReturn:
    """Say what is kept, and exit."""
    if is_first():
        with suppress(OSError):  # a terminal that was closed shows nothing
            show_error(str(stop))
    sys.exit(stop.exit_code)
