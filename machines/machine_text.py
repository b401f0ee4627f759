"""The attributes of a machine as text: what each means, its value, and a TOML file of them for people to change."""

import inspect
import re
from dataclasses import asdict, fields

import tomlkit
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import BASE
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


def full_text(config: Config, name: str) -> str:
    """All attributes of a machine, each with its meaning as a comment; the first line bases it on a preset.

    Args:
        name: Name of the machine.
    """
    base = nearest(config)
    title = f"A machine that begins as {name}. Change what you like, and delete what stays as in {base}."
    document = _begun(title, base)
    for attribute, meaning in meanings().items():
        document.add(tomlkit.nl())
        document.add(tomlkit.comment(meaning))
        document.add(attribute, _value(getattr(config, attribute)))
    return tomlkit.dumps(document)


def changes_text(config: Config, title: str, base: str = "") -> str:
    """The attributes in which a machine differs from a preset.

    Args:
        title: What the machine is, for the comment in the first line.
        base:  Name of the preset; the nearest one by default.
    """
    base = base or nearest(config)
    document = _begun(title, base)
    for attribute in differing(config, PRESETS[base]):
        document.add(attribute, _value(getattr(config, attribute)))
    return tomlkit.dumps(document)


def nearest(config: Config) -> str:
    """Name of the preset from which a machine differs in the fewest attributes."""
    return min(PRESETS, key=lambda name: len(differing(config, PRESETS[name])))


def _begun(title: str, base: str) -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    document.add(tomlkit.comment(title))
    document.add(BASE, base)
    return document


def _value(value: int | bool | Format):
    """The value of an attribute; a format becomes a table on one line."""
    if not isinstance(value, Format):
        return value
    table = tomlkit.inline_table()
    table.update({key: str(item) if key == "rule" else item for key, item in asdict(value).items()})
    return table
