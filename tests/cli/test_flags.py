"""Parameters in library messages become flags on the command line."""

import pytest
import typer

from sptnet.cli import app
from sptnet.cli.flags import flags_of, with_flags
from sptnet.cli.stopping import Verbs
from sptnet.errors import Misuse
from sptnet.runtime import progress

FLAGS = {name: f"--{name}" for name in ("out", "overwrite", "weights", "minutes")} | {
    "settings": "--set",
    "without_model": "--no-model-pictures",
}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Pass `overwrite=True`, or another `out`.", "Pass --overwrite, or another --out."),
        ("Give `minutes=5`.", "Give --minutes 5."),
        ("Give `out='my runs/a'`.", "Give --out 'my runs/a'."),
        ("Add `model_pictures=False`.", "Add --no-model-pictures."),
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


def test_parameters_without_a_flag_are_left_as_they_are() -> None:
    assert with_flags("Pass `resume=True` or `a.b=1`.", {"out": "--out"}) == "Pass `resume=True` or `a.b=1`."


def test_the_flags_of_every_command_are_found() -> None:
    commands = typer.main.get_command(app).commands
    train = flags_of(commands["train"])
    assert (train["out"], train["overwrite"], train["settings"]) == ("--out", "--overwrite", "--set")
    assert flags_of(commands["edit"])["into"] == "--into", "sub-commands too"
    assert flags_of(commands["discover"])["continue_"] == "--continue"


def test_messages_and_errors_of_a_command_name_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.Typer(cls=Verbs)

    @group.command()
    def pack(out: str = "box", fail: bool = False) -> None:
        progress.say("Give `out=FILE`.")
        if fail:
            raise Misuse("Give another `out`.")

    @group.command()
    def unpack() -> None:
        progress.say("Give `out=FILE`.")

    group(["pack"], standalone_mode=False)
    group(["unpack"], standalone_mode=False)
    with pytest.raises(Misuse) as error:
        group(["pack", "--fail"], standalone_mode=False)
    assert capsys.readouterr().err == "Give --out FILE.\nGive `out=FILE`.\nGive --out FILE.\n"
    assert (str(error.value), error.value.shown) == ("Give another `out`.", "Give another --out.")
    progress.say("Give `out=FILE`.")
    assert capsys.readouterr().err == "Give `out=FILE`.\n", "outside a command"
