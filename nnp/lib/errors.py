"""Turn errors into a sentence on stderr and an exit code: 2 for bad input, 1 for a failure of a machine."""

import functools
from collections.abc import Callable

import typer

FAILED = 1  #: Exit code if a machine, or a tool that builds it, fails.
BAD_INPUT = 2  #: Exit code for errors that the user can correct.


def sentences(command: Callable) -> Callable:
    """Wrap a command so that its errors go to stderr as sentences, without a traceback."""

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
    """A sentence about an error."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
