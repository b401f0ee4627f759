"""Configurations as text, for the environment of a simulation."""

import json
from dataclasses import asdict

from concord.spec.machine.config import Config, preset, preset_name


def to_text(config: Config) -> str:
    """The name of the configuration if it is a preset, or else its attributes as JSON."""
    return preset_name(config) or json.dumps(asdict(config))


def from_text(text: str) -> Config:
    """The configuration that `to_text` wrote."""
    return Config.from_record(json.loads(text)) if text.startswith("{") else preset(text)
