"""Options as dataclasses whose fields are options in Python, in TOML files and on the command line."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

#: What stands for None in a number that is derived unless a user gives it.
AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class UserOptions:
    """What dataclasses of options share."""

    @classmethod
    def of(cls, given: Mapping[str, Any], others: tuple[str, ...] = ()) -> Self:
        """The options of these values by name; None stands for the default, and names stand for methods.

        Args:
            given:  The values.
            others: Names of further arguments, for the advice about a name that is misspelt.

        Raises:
            ValueError: there is no such option or method, or a value is of the wrong type.
        """
        return chosen(given, (cls,), others)[0]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The options of a TOML file, see `read`."""
        return read(path, (cls,))[0]

    @classmethod
    def value(cls, name: str, kind: Any, value: Any) -> Any:
        """A value in the type of its field.

        Raises:
            ValueError: it is of another type.
        """
        (wanted,) = (one for one in (get_args(kind) or (kind,)) if one is not type(None))
        if issubclass(wanted, StrEnum):
            if value not in list(wanted):
                raise ValueError(f"{value!r}: choose one of {', '.join(wanted)}")
            return wanted(value)
        if wanted is float:
            return number(value, name)
        if type(value) is not wanted and not (wanted is str and isinstance(value, str)):
            raise ValueError(f"{name}: {value!r} is no {wanted.__name__}")
        return value


def number(value: float | str, name: str = "") -> float | None:
    """A number, or None for "auto".

    Raises:
        ValueError: the value is neither.
    """
    if value == AUTO:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name and f'{name}: '}{value!r} is no number, and not {AUTO}") from None


def chosen(given: Mapping[str, Any], kinds: tuple[type[UserOptions], ...], others: tuple[str, ...] = ()
           ) -> tuple[Any, ...]:
    """Options of several kinds, each with the values whose names are its own; see `UserOptions.of`."""
    known = {item.name: kind for kind in kinds for item in fields(kind)}
    if unknown := [name for name in given if name not in known]:
        near = get_close_matches(unknown[0], [*known, *others], 1)
        raise ValueError(f"there is no option {unknown[0]}: " + (
            f"is {near[0]} meant?" if near else f"choose among {', '.join(sorted(known))}"))
    return tuple(kind(**{
        name: kind.value(name, get_type_hints(kind)[name], value)
        for name, value in given.items() if known[name] is kind and value is not None}) for kind in kinds)


def read(path: Path, kinds: tuple[type[UserOptions], ...]) -> tuple[Any, ...]:
    """The options of a TOML file, whose keys are the names of the fields.

    Raises:
        ValueError: there is no such file, it is no TOML, or it holds what is no option.
    """
    try:
        return chosen(tomllib.loads(path.read_text("utf-8-sig")), kinds)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
