"""Event counters, which have 32 bits and saturate."""

from concord.golden.mvm.overflow import Events
from concord.spec.host.registers import EVENTS, Counter

_LARGEST = (1 << 32) - 1


class Counters:
    """The event counters of one machine."""

    def __init__(self):
        self.clear()

    def clear(self):
        """Set all counters to 0."""
        self.values = dict.fromkeys(EVENTS, 0)

    def add(self, counter: Counter, count: int):
        """Count `count` events."""
        self.values[counter] = min(self.values[counter] + int(count), _LARGEST)

    def add_overflows(self, events: Events):
        """Count overflow events, and keep the largest excess."""
        for kind in ("partial", "product", "output"):
            self.add(Counter[f"OVERFLOW_{kind.upper()}"], getattr(events, kind))
            excess = Counter[f"EXCESS_{kind.upper()}"]
            self.values[excess] = max(self.values[excess], getattr(events, f"excess_{kind}"))
