"""Named values on their way through a pipeline."""

from collections import ChainMap
from collections.abc import Mapping

from amaranth import *
from concord.hw.lib.pipeline import delay

__all__ = ["Registered", "follow"]


class Registered(Mapping):
    """What `before` holds, one cycle later; only what is asked for gets registers."""

    def __init__(self, m: Module, before: Mapping):
        self.m, self.before, self.made = m, before, {}

    def __getitem__(self, name: str):
        if name not in self.made:
            self.made[name] = delay(self.m, Value.cast(self.before[name]), 1)
        return self.made[name]

    def __iter__(self):
        return iter(self.before)

    def __len__(self):
        return len(self.before)


def follow(values: Mapping, made: Mapping) -> Mapping:
    """`values` and what a stage has made of them."""
    return ChainMap(dict(made), values)
