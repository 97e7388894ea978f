"""The errors a user can meet: each says what is wrong and names the way out."""


class SptnetError(Exception):
    """Base of every error that sptnet raises on purpose; the command line prints it without a traceback."""

    exit_code = 1
    said_elsewhere = False
    """Whether another process of the job prints it."""
    shown: str | None = None
    """The message with flags in the place of parameters, once the command line has put them there."""


class Misuse(SptnetError, ValueError):
    """The user asked for something that cannot be done as asked: exit code 2."""

    exit_code = 2


class Failure(SptnetError, RuntimeError):
    """Something went wrong while doing the right thing (damaged file, loss not finite): exit code 1."""

    exit_code = 1
