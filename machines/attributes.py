"""The attributes of a machine as text: what each means, and its value."""

import inspect
import re
from dataclasses import fields

from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

#: Names of all attributes, in the order of `Config`.
ATTRIBUTES = tuple(field.name for field in fields(Config))


def meanings() -> dict[str, str]:
    """What each attribute means, by its name: the documentation of `Config`."""
    text = (inspect.getdoc(Config) or "").split("Attributes:\n")[1].split("\n\n")[0]
    joined = re.sub(r"\n {5,}", " ", text)  # a line that is indented further goes on with the one before
    found = dict(re.findall(r"^ *(\w+): +(.*)$", joined, re.MULTILINE))
    return {name: found[name] for name in ATTRIBUTES}


def shown(value: int | bool | Format) -> str:
    """The value of an attribute, short enough for a table."""
    if isinstance(value, Format):
        kind = "" if value.precision else ", symmetric" if value.symmetric else ", full"
        return f"{value.element}{kind}, E {value.e_min}..{value.e_max}, {value.rule}"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:,}"


def differing(*configs: Config) -> list[str]:
    """Names of the attributes in which configurations differ."""
    return [name for name in ATTRIBUTES if len({getattr(config, name) for config in configs}) > 1]


def products(config: Config) -> int:
    """Largest number of products of a weight and an activation in one cycle."""
    return config.tile_engines * config.native_dim * config.lanes
