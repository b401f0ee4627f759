"""Configurations as text, for the environment of a simulation."""

import json
from dataclasses import asdict

from concord.spec.config import PRESETS, Config, preset


def to_text(config: Config) -> str:
    """The name of the configuration if it is a preset, or else its attributes as JSON."""
    names = [name for name, known in PRESETS.items() if known == config]
    return names[0] if names else json.dumps(asdict(config))


def from_text(text: str) -> Config:
    """The configuration that `to_text` wrote."""
    return Config.from_record(json.loads(text)) if text.startswith("{") else preset(text)
