"""Configurations as text, for the environment of a simulation."""

import json
from dataclasses import asdict

from concord.spec.config import PRESETS, Config, preset
from concord.spec.formats import Format, Rule


def to_text(config: Config) -> str:
    """The name of a preset, or else the attributes as JSON."""
    names = [name for name, known in PRESETS.items() if known == config]
    return names[0] if names else json.dumps(asdict(config))


def from_text(text: str) -> Config:
    """The configuration that `to_text` wrote."""
    if not text.startswith("{"):
        return preset(text)
    record = json.loads(text)
    formats = {name: Format(**record[name] | {"rule": Rule(record[name]["rule"])})
               for name in ("weights", "activations")}
    return Config(**record | formats)
