"""What the members of an enumeration mean, for pages that are written from it."""

import inspect
from collections.abc import Mapping
from enum import Enum, IntEnum, IntFlag


def comments(enum: type[Enum]) -> dict[str, str]:
    """The `#:` comment beside each member, and in lines below it; a member without one has that of the one before."""
    result, text, name = {}, "", ""
    for line in map(str.strip, inspect.getsource(enum).splitlines()):
        if line.startswith("#: ") and name:
            text += f" {line[3:]}"
        else:
            name, equals, rest = line.partition(" = ")
            if not equals or name not in enum.__members__:
                name = ""
                continue
            _, marked, comment = rest.partition("#: ")
            text = comment if marked else text
        result[name] = text.replace("|", "\\|")
    return result


def described(enum: type[IntEnum | IntFlag], names: Mapping | None = None) -> list[tuple[int, str, str]]:
    """Code, name and meaning of each member, by code; `names` replaces the names of the members.

    The meaning is the attribute `meaning` of a member that has one, else the comment beside it.
    """
    beside = comments(enum)
    return [(int(member), names[member] if names else str(member.name),
             getattr(member, "meaning", "") or beside.get(str(member.name), "")) for member in sorted(enum)]
