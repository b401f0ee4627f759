"""Choices by name, and names that a terminal can show."""

from collections.abc import Iterable
from enum import StrEnum


def cleaned(text: str, kept: str = "") -> str:
    """A text with control characters, such as those that move a terminal's cursor, as escapes; `kept` ones stay."""
    return "".join(sign if sign.isprintable() or sign in kept else sign.encode("unicode_escape").decode()
                   for sign in text)


def check_printable(what: str, names: Iterable[str]):
    """Refuse names with control characters.

    Raises:
        ValueError: a sentence that shows the first of them, cleaned.
    """
    for name in names:
        if not name.isprintable():
            raise ValueError(f"{what} {cleaned(name)!r} holds a control character, such as one that moves a terminal's "
                             "cursor; rename it")


def named(kind: type[StrEnum], name: str) -> StrEnum:
    """The member of a table of names.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in list(kind):
        raise ValueError(f"{name!r}: choose one of {', '.join(kind)}")
    return kind(name)
