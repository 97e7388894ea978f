"""Replace parameters in library messages by command-line flags.

Library errors name Python parameters and settings between backticks: `overwrite=True`, `out`, `training.batch_size=32`,
`train(out='runs/a', resume=True)`. Here they become flags and commands: --overwrite, --out,
--set training.batch_size=32, sptnet train --out runs/a --resume. Anything without a flag is left as it is.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any

from sptnet.runtime.text import shell_line, shell_word

OWN_OPTIONS = {
    "data.folder": ("data", "folder"),
    "data.labels": ("labels",),
    "data.unlabelled": ("unlabelled",),
    "data.max_unreadable": ("max_unreadable",),
    "data.skip_duplicates": ("skip_duplicates",),
    "n_categories": ("categories",),
    "backbone.name": ("backbone",),
    "training.track": ("track",),
    "backbone.weights": ("weights",),
    "sptnet.start_from": ("start_from",),
    "mugcd.start_from": ("start_from",),
}
"""Parameters of commands that stand for a setting."""
SWITCHES = {
    "data.folder_labels=false": "no_folder_labels",
    "data.max_unreadable=1": "skip_unreadable",
    "data.skip_duplicates=true": "skip_duplicates",
}
"""Parameters of commands that stand for a setting with a value."""
_MARKED = re.compile(r"`([^`]+)`")
_NAME = re.compile(r"[a-z_][a-z0-9_.]*")


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """Replace parameters between backticks by flags; `flags` holds the flags of the command by parameter name."""
    return _MARKED.sub(lambda match: _render(match.group(1), flags) or match.group(0), message)


def flags_of(command: Any) -> dict[str, str]:
    """Return the long flags of a command and its sub-commands, by parameter name."""
    flags: dict[str, str] = {}
    for inner in getattr(command, "commands", {}).values():
        flags |= flags_of(inner)
    for parameter in command.params:
        named = [name for name in parameter.opts if name.startswith("--")]
        if named:
            flags[parameter.name] = named[0]
    return flags


def _render(text: str, flags: Mapping[str, str]) -> str | None:
    """Return a parameter, setting or call in the words of the command line; None if there are no such words."""
    call = re.fullmatch(r"([a-z_]+)\((.*)\)", text, flags=re.DOTALL)
    if call is not None:
        return _command(text)
    if SWITCHES.get(text) in flags:
        return flags[SWITCHES[text]]
    name, equals, value = text.partition("=")
    if not _NAME.fullmatch(name):
        return None
    opposite = f"--no-{name.replace('_', '-')}"
    if value == "False" and opposite in flags.values():
        return opposite
    flag = flags.get(name) or next((flags[own] for own in OWN_OPTIONS.get(name, ()) if own in flags), None)
    if flag is not None:
        return flag if not equals or value == "True" else f"{flag} {_plain(value)}"
    if "settings" in flags and equals:
        return f"{flags['settings']} {name}={_plain(value)}"
    return None


def _plain(value: str) -> str:
    """Turn a Python literal into a shell word; leave anything else as it is."""
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return shell_word(str(literal))


def _command(text: str) -> str | None:
    """Turn a call such as train(out='x', resume=True) into a command line."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    try:
        words = [str(ast.literal_eval(argument)) for argument in call.args]
        for keyword in call.keywords:
            value = ast.literal_eval(keyword.value)
            flag = f"--{str(keyword.arg).rstrip('_').replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
    except ValueError:
        return None
    return shell_line(["sptnet", call.func.id.rstrip("_"), *words])
