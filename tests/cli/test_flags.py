"""Parameters in library messages become flags on the command line."""

import pytest
import typer

from sptnet.cli import app
from sptnet.cli.flags import flags_of, with_flags

FLAGS = {name: f"--{name}" for name in ("out", "overwrite", "weights", "minutes")} | {"settings": "--set"}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Pass `overwrite=True`, or another `out`.", "Pass --overwrite, or another --out."),
        ("Give `minutes=5`.", "Give --minutes 5."),
        ("Give `out='my runs/a'`.", "Give --out 'my runs/a'."),
        ("Use `training.batch_size=32`.", "Use --set training.batch_size=32."),
        ("Use `backbone.weights=FILE`.", "Use --weights FILE."),
        ("Use `prompt.kind='spatial+global'`.", "Use --set prompt.kind=spatial+global."),
        ("Resume it: `train(out='runs/a b', resume=True)`", "Resume it: sptnet train --out 'runs/a b' --resume"),
        ("Name it: `edit('runs/a', 'rename', 'new-1', 'NAME')`", "Name it: sptnet edit runs/a rename new-1 NAME"),
        ("`import_('f.pt', out='MODEL')`", "sptnet import f.pt --out MODEL"),
        ("`data('cub', data='DIR', download=True)`", "sptnet data cub --data DIR --download"),
        ("`settings` 'x' is no setting", "--set 'x' is no setting"),
        ("The setting `training.batch_size` is too large.", "The setting `training.batch_size` is too large."),
        ("See `sptnet recipes list`.", "See `sptnet recipes list`."),
        ("`f(x)` is no call of constants", "`f(x)` is no call of constants"),
        ("an odd ` backtick", "an odd ` backtick"),
    ],
)
def test_parameters_become_flags(message: str, shown: str) -> None:
    assert with_flags(message, FLAGS) == shown


def test_what_a_command_has_no_flag_for_stays() -> None:
    assert with_flags("Pass `resume=True` or `a.b=1`.", {"out": "--out"}) == "Pass `resume=True` or `a.b=1`."


def test_the_flags_of_every_command_are_found() -> None:
    commands = typer.main.get_command(app).commands
    train = flags_of(commands["train"])
    assert (train["out"], train["overwrite"], train["settings"]) == ("--out", "--overwrite", "--set")
    assert flags_of(commands["edit"])["into"] == "--into", "those of sub-commands too"
    assert flags_of(commands["discover"])["continue_"] == "--continue"
