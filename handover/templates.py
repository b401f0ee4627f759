"""The templates of the files that a hand-over has."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).with_name("templates")


def rendered(name: str, values: dict) -> str:
    """The text of a template; `values` are its names."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True,
                              keep_trailing_newline=True, autoescape=False)
    helpers: dict[str, Any] = {"bits": lambda value: value.bit_length() - 1, "string": _string, "comment": _comment}
    environment.globals.update(helpers)
    return environment.get_template(name).render(values)


def copied(name: str) -> str:
    """The text of a file that is the same in every hand-over."""
    return (TEMPLATES / name).read_text()


def _string(text: str) -> str:
    """A C string of any text. JSON escapes quotes and backslashes as C does; C99 would read two ? as a trigraph."""
    return json.dumps(_comment(text), ensure_ascii=False).replace("??", '?""?')


def _comment(text: str) -> str:
    """Text that neither ends a C comment nor holds characters that cannot be printed."""
    return "".join(letter if letter.isprintable() else " " for letter in text).replace("*/", "* /")
