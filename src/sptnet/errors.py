"""Exceptions for users: each message says what is wrong and how to fix it."""

from collections.abc import Sequence

NEXT_REASON = "\n  - "
"""What stands before each reason of a message that has several."""


def with_reasons(message: str, reasons: Sequence[str]) -> str:
    """Return a message that ends with its reason, or with a list of them."""
    return f"{message} {reasons[0]}" if len(reasons) == 1 else NEXT_REASON.join((message, *reasons))


class SptnetError(Exception):
    """Base class of all errors raised on purpose; the command line prints them without a traceback."""

    exit_code = 1
    reported_elsewhere = False
    """True if another process of the job prints the message."""
    shown: str | None = None
    """The message with command-line flags instead of parameters; set by the command line."""


class Misuse(SptnetError, ValueError):
    """Invalid request, such as a wrong setting or a missing file: exit code 2."""

    exit_code = 2


class Failure(SptnetError, RuntimeError):
    """Valid request that failed, for example on a damaged file or a loss that is not finite: exit code 1."""

    exit_code = 1
