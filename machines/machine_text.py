"""The text of a TOML file that describes a machine, for people to change."""

from dataclasses import asdict

import tomlkit
from concord.machines.attributes import differing, meanings
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import BASE
from concord.spec.numbers.formats import Format


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


