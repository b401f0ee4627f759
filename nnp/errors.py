"""The one place where bad input becomes a sentence on stderr and exit code 2."""

import functools
from collections.abc import Callable

import typer

BAD_INPUT = 2  #: Exit code.


def sentences(command: Callable) -> Callable:
    """`command`, whose ValueError and OSError are the user's to mend: their text goes to stderr, no traceback."""

    @functools.wraps(command)
    def wrapped(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError) as error:
            typer.echo(f"nnp: {describe(error)}", err=True)
            raise typer.Exit(BAD_INPUT) from error

    return wrapped


def describe(error: ValueError | OSError) -> str:
    """What went wrong, in a sentence."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
