"""Amaranth's transformers of expressions, which copy an expression once, not once for each of its uses."""

from collections.abc import Callable
from functools import wraps


def shared(on_value: Callable) -> Callable:
    """The method `on_value` of such a transformer, which gives what it made of an expression before.

    Amaranth copies an expression for each use, so that logic whose steps use the step before twice grows exponentially.
    """
    @wraps(on_value)
    def once(self, value):
        made = self.__dict__.setdefault("_made", {})
        domains = getattr(self, "domains", None)  # one expression may stand in fragments whose domains differ
        key = id(domains), id(value)
        if key not in made:
            # Both objects are kept, so that no other object gets their id.
            made[key] = on_value(self, value), value, domains
        return made[key][0]
    return once
