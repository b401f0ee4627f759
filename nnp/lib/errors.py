"""The one place where errors become a sentence on stderr and an exit code: 2 for bad input, 1 for a failing machine."""

import functools
from collections.abc import Callable

import typer

FAILED = 1  #: Exit code where a machine, or a tool that builds it, fails.
BAD_INPUT = 2  #: Exit code where the user can mend it.


def sentences(command: Callable) -> Callable:
    """`command`, whose errors go to stderr as sentences, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except typer.Exit:
            raise
        except (ValueError, OSError) as error:
            typer.echo(f"nnp: {describe(error)}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except (RuntimeError, AssertionError) as error:
            typer.echo(f"nnp: {error}", err=True)
            raise typer.Exit(FAILED) from error

    return wrapped


def describe(error: ValueError | OSError) -> str:
    """What went wrong, in a sentence."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
