"""Named values that move through a pipeline."""

from collections import ChainMap
from collections.abc import Mapping

from amaranth import *
from concord.hw.lib.pipeline import delay


class Registered(Mapping):
    """The values of `before`, one cycle later; only values that are read get registers."""

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
    """`values`, and the values that a stage computes from them."""
    return ChainMap(dict(made), values)
