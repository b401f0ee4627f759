"""Machines of one's own: a TOML file of the attributes of `Config`, taken wherever a preset's name is taken.

    based_on = "vision"
    weights = { bits = 6 }
    matrix_tiles = 512
"""

import re
import tomllib
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from concord.spec.machine.config import PRESETS, Config, preset
from concord.spec.numbers.formats import Format, Rule

ENDING = ".toml"
BASE = "based_on"  #: Key of the preset whose values hold for attributes that the file does not name.
LARGEST = 100_000  #: Most bytes of a file that is read: a machine of every attribute with comments has about 4,000.

_ATTRIBUTES = {field.name: field for field in fields(Config)}
_OF_FORMATS = {field.name: field for field in fields(Format)}


def find_config(machine: str) -> Config:
    """The configuration of a machine: that of the preset, or in the TOML file, that `machine` names.

    Raises:
        ValueError: there is no such preset or file, or the file describes no machine.
    """
    if len(names := machine.split(",")) > 1 and not Path(machine).exists():
        raise ValueError(f"{machine!r} names {len(names)} machines, and this takes one; `nnp compile` and `nnp verify` "
                         f"cut a network over {len(names)} with --machines {len(names)}")
    if _is_file(machine):
        return read_config(Path(machine))
    if machine not in PRESETS and Path(machine + ENDING).is_file():
        raise ValueError(f"there is no preset {machine!r}, but there is a file: write {machine}{ENDING}")
    return preset(machine)


def machine_name(machine: str) -> str:
    """The name in reports of `machine`: that of the preset, or the stem of the file.

    A file that is called as a preset, and describes another machine, keeps its ending.
    """
    if not _is_file(machine):
        return machine
    path = Path(machine)
    same = path.stem not in PRESETS or PRESETS[path.stem] == read_config(path)
    return path.stem if same else path.name


def read_config(path: Path) -> Config:
    """The configuration in a TOML file.

    Raises:
        ValueError: the file is missing or no TOML, or describes no machine. The sentence names the file, and the
            attribute with its line where one is at fault.
    """
    if not path.is_file():
        missing = "it is a folder" if path.is_dir() else "there is no such file"
        raise ValueError(f"{path}: {missing}; a machine is the name of a preset ({', '.join(PRESETS)}) or a TOML file, "
                         "and `nnp presets vision --toml` prints one to start from")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path}: a file of {path.stat().st_size:,} bytes describes no machine: {LARGEST:,} are the "
                         "most")
    try:
        text = path.read_bytes().decode("utf-8-sig")  # editors of Windows begin files with a mark
        return config_from_text(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def config_from_text(text: str) -> Config:
    """The configuration that TOML text describes.

    Raises:
        ValueError: it is no TOML, or describes no machine.
    """
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no TOML: {error}") from error
    try:
        return _made(given)
    except ValueError as error:
        line = _line(text, str(error))
        raise ValueError(f"{f'line {line}: ' if line else ''}{error}") from error


def _is_file(machine: str) -> bool:
    """Whether `machine` is written as the path of a file."""
    return machine.endswith(ENDING) or "/" in machine or (machine not in PRESETS and Path(machine).is_file())


def _made(given: dict) -> Config:
    """The configuration of the keys and values of a file."""
    base = _base(given)
    values = {name: getattr(base, name) for name in _ATTRIBUTES} if base else {}
    for name, value in given.items():
        if name != BASE:
            values[name] = _value(name, value, values.get(name))
    needed = [name for name, field in _ATTRIBUTES.items() if field.default is MISSING and name not in values]
    if needed:
        raise ValueError(f"it lacks {', '.join(needed)}: name them, or begin with a line such as {BASE} = \"vision\"")
    return Config(**values)


def _base(given: dict) -> Config | None:
    name = given.get(BASE)
    if name is None:
        return None
    if not isinstance(name, str):
        raise ValueError(f"{BASE} = {_shown(name)} must be the name of a preset in quotation marks, such as \"vision\"")
    if name not in PRESETS:
        raise ValueError(f"{BASE} = {_shown(name)} is no preset{_meant(name, PRESETS)}: choose one of "
                         f"{', '.join(PRESETS)}")
    return PRESETS[name]


def _value(name: str, value, base):
    """The value of an attribute as `Config` takes it; a table of a format changes the base's format."""
    if name not in _ATTRIBUTES:
        raise ValueError(f"{name} = {_shown(value)}: a machine has no such attribute{_meant(name, _ATTRIBUTES)}; it "
                         f"has {', '.join(_ATTRIBUTES)}")
    if _ATTRIBUTES[name].type is not Format:
        _check_type(name, value, _ATTRIBUTES[name].type)
        return value
    if not isinstance(value, dict):
        raise ValueError(f"{name} = {_shown(value)} must be a table, such as {name} = {{ bits = 8, symmetric = true }}")
    return _format(name, value, base or Format())


def _format(name: str, given: dict, base: Format) -> Format:
    """The format `base` with some of its attributes changed."""
    for key, value in given.items():
        if key not in _OF_FORMATS:
            raise ValueError(f"{name} = {_shown(given)}: a format has no attribute {key}{_meant(key, _OF_FORMATS)}; it "
                             f"has {', '.join(_OF_FORMATS)}")
        if key != "rule":
            _check_type(f"{name}.{key}", value, _OF_FORMATS[key].type)
        elif value not in list(Rule):
            raise ValueError(f"{name}.rule = {_shown(value)} must be one of "
                             f"{', '.join(_shown(str(rule)) for rule in Rule)}")
    values: dict[str, Any] = {key: getattr(base, key) for key in _OF_FORMATS} | given
    values["rule"] = Rule(values["rule"])
    try:
        return Format(**values)
    except ValueError as error:
        raise ValueError(f"{name} = {_shown(given)}: {error}") from error


def _check_type(name: str, value, kind: object):
    if type(value) is kind:  # a bool is no number
        return
    wanted = "true or false" if kind is bool else "a whole number, without quotation marks"
    raise ValueError(f"{name} = {_shown(value)} must be {wanted}")


def _shown(value) -> str:
    """A value as TOML writes it, short enough for a sentence."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        text = f"{{ {', '.join(f'{key} = {_shown(item)}' for key, item in value.items())} }}"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _meant(name: str, known) -> str:
    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _line(text: str, sentence: str) -> int | None:
    """Number of the line that sets the attribute with which a sentence begins, if the file has one."""
    name = re.match(r"\w+", sentence)
    found = name and re.search(rf"^[ \t]*\[?{name[0]}\b", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else None
