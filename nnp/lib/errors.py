"""Turn errors into a sentence on stderr and an exit code: 2 for bad input, 1 for a failure of a machine."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import typer
from concord.lib.extras import missing
from concord.lib.names import check_printable, cleaned

FAILED = 1  #: Exit code if a machine, or a tool that builds it, fails.
BAD_INPUT = 2  #: Exit code for errors that the user can correct.
STOPPED = 130  #: Exit code after Ctrl-C, as shells have it.

LONGEST = 1000  #: Signs of a word that is shortened: more than paths and names of nodes have.


def sentences(command: Callable) -> Callable:
    """Wrap a command so that its errors go to stderr as sentences, without a traceback."""

    @functools.wraps(command)
    def wrapped(*args, **kwargs):
        try:
            check_printable("the argument", _texts([*args, *kwargs.values()]))
            return command(*args, **kwargs)
        except typer.Exit:
            raise
        except (ValueError, OSError) as error:
            typer.echo(f"nnp: {describe(error)}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except MemoryError as error:
            typer.echo(f"nnp: it needs more memory than this computer has ({readable(str(error)) or 'out of memory'}): "
                       "make the network or the machine smaller", err=True)
            raise typer.Exit(FAILED) from error
        except ModuleNotFoundError as error:
            if not missing(error):
                raise
            typer.echo(f"nnp: {missing(error)}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except (RuntimeError, AssertionError) as error:
            typer.echo(f"nnp: {readable(str(error))}", err=True)
            raise typer.Exit(FAILED) from error

    return wrapped


def _texts(values: Iterable) -> Iterator[str]:
    """The texts and paths among the arguments of a command."""
    for value in values:
        if isinstance(value, str | Path):
            yield str(value)
        elif isinstance(value, list | tuple):
            yield from _texts(value)


def describe(error: ValueError | OSError) -> str:
    """A sentence about an error, without signs from a file that would move the cursor or fill the terminal."""
    if isinstance(error, OSError) and error.filename is not None:
        return readable(f"{error.filename}: {error.strerror}")
    return readable(str(error))


def readable(text: str) -> str:
    """A text with control characters as escapes, and without the middle of words that are longer than a path."""
    text = re.sub(rf"\S{{{LONGEST},}}", lambda word: f"{word[0][:100]}...{word[0][-20:]}", text)
    return cleaned(text, "\n")
